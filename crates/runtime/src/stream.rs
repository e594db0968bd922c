//! Streams: where a thread of a stream build writes its events; the flight recorder. The layout is in `trodden_wire::stream`.
//!
//! Instrumented code writes events by itself. It comes here when a chunk is full ([`next_chunk`]) and when a thread has
//! no frame yet ([`next_slot`]). Chunks of a *whole program* are filled where nothing is in use: in the thread's
//! regions in turn, which form a ring; if all are in use, since the recorder is slower, the thread gets one region
//! more, up to a bound. Then it waits until the recorder gives a chunk back. Where none comes back for the time of
//! patience, as when the recorder is dead, or where there is no room for another region, the last chunk's events are
//! given up, and counted; and nobody waits again before a chunk came back. A *flight recorder* overwrites the first
//! chunks of the one region.
//!
//! Invariants: signals are blocked while a thread's chunk changes; a region's stream is written by its thread alone; a
//! chunk is [`CHUNK_FULL`] only when it will not change any more.

use crate::entry::bias;
use crate::image::{Image, address_of};
use crate::output;
use crate::state;
use crate::system;
use crate::text::{self, Text};
use crate::wire::stream::{
    CHUNK_BYTES, CHUNK_CURRENT, CHUNK_EVENTS, CHUNK_FREE, CHUNK_FULL, ChunkHeader, DEFAULT_LAST, DEFAULT_PATIENCE_MS, DEFAULT_REGIONS,
    HEADER_BYTES, MOST_LAST, MOST_PATIENCE_MS, MOST_REGIONS, RING_OFFSET, RegionStream, SHADOW_BYTES, SLOTS, STREAM_VARIABLE,
    TAG_INHERITED, TAG_MASK, ThreadStream,
};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};

const CHUNK: usize = CHUNK_BYTES as usize;
const HEADER: usize = HEADER_BYTES as usize;
const SHADOW: usize = SHADOW_BYTES as usize;
const WORD: usize = 4;
/// So many events of a signal handler are kept that comes between the end of a chunk and the runtime; more are lost, and counted.
const MOST_BEHIND: usize = 256;

/// Chunks that a flight recorder uses; 0: whole programs.
static RECORDER_SLOTS: AtomicU32 = AtomicU32::new(0);
/// Of whole programs: regions of a thread at most, and how long it waits.
static REGIONS: AtomicU32 = AtomicU32::new(DEFAULT_REGIONS as u32);
static PATIENCE_MS: AtomicU32 = AtomicU32::new(DEFAULT_PATIENCE_MS as u32);
/// A thread waited in vain, and no chunk came back since then.
static IS_STALLED: AtomicBool = AtomicBool::new(false);

// Jumped to with the cursor (the shadow stack pointer) in rax and the place to go on in r11, which code does after its
// red zone was left alone. rax, r11 and flags are changed.
macro_rules! stub {
    ($name:literal, $function:ident) => {
        global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\", @progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            ".balign 16",
            concat!($name, ":"),
            ".cfi_startproc",
            ".cfi_def_cfa rsp, 0",
            ".cfi_register rip, r11",
            "lea rsp, [rsp - 128]",
            ".cfi_adjust_cfa_offset 128",
            "push r11",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rip, -136",
            "push rbp",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rbp, -144",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rcx",
            "push rdx",
            "push rsi",
            "push rdi",
            "push r8",
            "push r9",
            "push r10",
            "cld",
            "sub rsp, 512",
            "and rsp, -16",
            "fxsave64 [rsp]",
            "mov rdi, rax",
            "call {function}",
            "fxrstor64 [rsp]",
            "lea rsp, [rbp - 56]",
            "pop r10",
            "pop r9",
            "pop r8",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop rcx",
            "pop rbp",
            ".cfi_def_cfa rsp, 136",
            "pop r11",
            ".cfi_adjust_cfa_offset -8",
            ".cfi_register rip, r11",
            "lea rsp, [rsp + 128]",
            ".cfi_adjust_cfa_offset -128",
            "notrack jmp r11",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            function = sym $function,
        );
    };
}
stub!("__trodden_stream_next", next_chunk);
stub!("__trodden_stream_enter", next_slot);

/// The calling thread's cursor and shadow stack pointer, if the image has streams.
fn thread_stream() -> Option<&'static mut ThreadStream> {
    let find = address_of!("__trodden_stream_place");
    if find == 0 {
        return None;
    }
    // SAFETY: units define a function of that name and type; what it gives is the thread's own, and borrowed by one
    // function of this file at a time, with signals blocked.
    unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut ThreadStream>(find)().as_mut() }
}

/// Whether the image's code writes streams.
pub fn is_stream() -> bool {
    address_of!("__trodden_stream_place") != 0
}

/// At the image's start: what is to be kept. The texts are for work.
pub fn prepare(value: &mut Text, scratch: &mut Text) {
    if !is_stream() {
        return;
    }
    let asked = output::find_variable(STREAM_VARIABLE, value, scratch);
    let last = match value.bytes() {
        whole if asked && whole.starts_with(b"whole") && bound(&whole[5..]) => return,
        digits if asked && !digits.is_empty() => number(digits),
        _ => Some(DEFAULT_LAST),
    };
    let last = last.filter(|n| (1..=MOST_LAST).contains(n)).unwrap_or_else(|| {
        text::say_line(
            b"trodden: TRODDEN_STREAM is neither whole, whole,REGIONS,MILLISECONDS nor a number from 1 to 175000: the last 1000 \
              events of each thread are kept\n",
        );
        DEFAULT_LAST
    });
    // One is being filled, and the one behind it is free.
    RECORDER_SLOTS.store((last.div_ceil(CHUNK_EVENTS) + 2) as u32, Relaxed);
}

/// Reads the bounds of whole programs: nothing, or `,REGIONS,MILLISECONDS`. Whether they are understood.
fn bound(text: &[u8]) -> bool {
    if text.is_empty() {
        return true;
    }
    let mut numbers = text[1..].split(|byte| *byte == b',').map(number);
    let (Some(Some(regions)), Some(Some(patience)), None) = (numbers.next(), numbers.next(), numbers.next()) else { return false };
    REGIONS.store(regions.clamp(1, MOST_REGIONS) as u32, Relaxed);
    PATIENCE_MS.store(patience.min(MOST_PATIENCE_MS) as u32, Relaxed);
    text[0] == b','
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// The calling thread writes to the region at `base` from now on.
pub fn begin(base: usize) {
    begin_after(base, 0, &[]);
}

/// The same in a child of `fork`, where `frames` are the slots of the parent's frames, and the child's own.
fn begin_after(base: usize, parent: u32, frames: &[u32]) {
    let Some(thread) = thread_stream() else { return };
    let stream = RegionStream {
        thread: system::thread_id(),
        process: system::process_id(),
        slots: RECORDER_SLOTS.load(Relaxed),
        more_regions: 0,
        started_ns: system::now_ns(),
        sequence: 0,
        lost: 0,
        end: 0,
        region: base as u64,
        next: base as u64,
    };
    finish_chunks(base);
    // SAFETY: the region is mapped, this thread's, and begins with such a structure and the shadow stack.
    unsafe {
        (base as *mut RegionStream).write_volatile(stream);
        let slots = (base + HEADER) as *mut u32;
        for (index, slot) in frames.iter().enumerate() {
            slots.add(index).write_volatile(*slot);
        }
        slots.add(frames.len()).write_volatile(0);
    }
    thread.shadow = (base + HEADER + WORD * frames.len()) as u64;
    let Some(first) = advance(home(base), parent) else {
        thread.cursor = 0;
        return;
    };
    let mut to = first;
    for slot in frames {
        if to.is_multiple_of(CHUNK) {
            let Some(next) = advance(home(base), parent) else { break };
            to = next;
        }
        put(to, slot & !TAG_MASK | TAG_INHERITED);
        to += WORD;
    }
    thread.cursor = to as u64;
}

/// The thread writes nowhere any more; another event has it enter again.
pub fn end_thread() {
    if let Some(thread) = thread_stream() {
        *thread = ThreadStream::default();
    }
}

/// Slots of frames of a thread that forks, in memory of their own, while another region takes the place of its own.
pub struct Frames {
    address: usize,
    count: usize,
}

impl Frames {
    /// Keeps those of the calling thread, whose region is at `base`.
    pub fn keep(base: usize) -> Option<Frames> {
        let thread = thread_stream()?;
        let slots = base + HEADER;
        let count = (thread.shadow as usize).saturating_sub(slots).min(SHADOW - HEADER) / WORD;
        let address = system::map_zeros(SHADOW, None).ok()?;
        // SAFETY: both are mapped, the second is fresh.
        unsafe { core::ptr::copy_nonoverlapping(slots as *const u32, address as *mut u32, count) };
        Some(Frames { address, count })
    }

    /// Begins the child's stream with them, in the region at `base`.
    pub fn begin(self, base: usize) {
        // SAFETY: `keep` put so many there.
        let frames = unsafe { core::slice::from_raw_parts(self.address as *const u32, self.count) };
        begin_after(base, system::parent_id(), frames);
        system::unmap(self.address, SHADOW);
    }
}

/// The calling thread's first region, which holds its stream's state.
fn home(base: usize) -> &'static mut RegionStream {
    // SAFETY: regions of stream images begin so; this thread alone uses it, with signals blocked, and in one function at a time.
    unsafe { &mut *(base as *mut RegionStream) }
}

/// Finds room for an event where the cursor stopped; gives its address.
extern "C" fn next_chunk(stopped: usize) -> usize {
    let mask = system::set_signal_mask(u64::MAX);
    let address = find_room(stopped);
    system::set_signal_mask(mask);
    address
}

fn find_room(stopped: usize) -> usize {
    let Some(base) = own_region() else { return nowhere() };
    let Some(thread) = thread_stream() else { return nowhere() };
    let (stream, cursor) = (home(base), thread.cursor as usize);
    if stopped != 0 && stopped == stream.end as usize {
        // What a signal handler wrote between the addition to the cursor and here.
        let behind = stopped + WORD;
        let written = cursor.saturating_sub(behind) / WORD;
        let mut more = [0u32; MOST_BEHIND];
        for (index, word) in more.iter_mut().enumerate().take(written) {
            // SAFETY: it lies in the free chunk behind the one that was filled, which may be the next one.
            *word = unsafe { ((behind + index * WORD) as *const u32).read_volatile() };
        }
        stream.lost += written.saturating_sub(MOST_BEHIND) as u64;
        let Some(to) = advance(stream, 0) else { return nowhere() };
        let kept = written.min(MOST_BEHIND);
        for (index, word) in more.iter().enumerate().take(kept) {
            put(to + (index + 1) * WORD, *word);
        }
        thread.cursor = (to + (kept + 1) * WORD) as u64;
        return to;
    }
    let end = stream.end as usize;
    if end != 0 && (end - CHUNK + HEADER..end).contains(&cursor) {
        // The thread began just now, or a handler's last event changed chunks.
        thread.cursor += WORD as u64;
        return cursor;
    }
    if stopped != 0 {
        // A handler filled all of the chunk behind.
        stream.lost += CHUNK_BYTES / 4;
    }
    let Some(to) = advance(stream, 0) else { return nowhere() };
    thread.cursor = (to + WORD) as u64;
    to
}

/// Address of a word that is never read: without memory for anything else.
fn nowhere() -> usize {
    static NOWHERE: AtomicU32 = AtomicU32::new(0);
    if let Some(thread) = thread_stream() {
        thread.cursor = 0;
    }
    NOWHERE.as_ptr() as usize
}

/// Address of the calling thread's region; it gets one if it has none.
fn own_region() -> Option<usize> {
    let image = Image::of_linker();
    let bias = match bias() {
        0 => state::enter(),
        bias => bias,
    };
    (bias != 0).then(|| image.template.wrapping_add(bias as usize))
}

/// The slot of a thread's first frame, or of one too many.
extern "C" fn next_slot(pointer: usize) -> usize {
    static NOWHERE: AtomicU64 = AtomicU64::new(0);
    if pointer != 0 {
        return pointer;
    }
    let mask = system::set_signal_mask(u64::MAX);
    let slot = match (own_region(), thread_stream()) {
        (Some(_), Some(thread)) => {
            let slot = thread.shadow as usize;
            thread.shadow += WORD as u64;
            slot
        }
        _ => NOWHERE.as_ptr() as usize,
    };
    system::set_signal_mask(mask);
    slot
}

/// Finishes the chunk that is being filled and begins another; gives the address of its first event. `None`: there is
/// no room, not even at first.
fn advance(stream: &mut RegionStream, parent: u32) -> Option<usize> {
    let before = stream.end as usize;
    let chunk = match stream.slots {
        0 => find_free(stream),
        slots => Some(overwrite(stream, slots as usize)),
    };
    // A chunk that is given up was never full, so that nobody reads it.
    if chunk.is_some() && before != 0 {
        state_of(before - CHUNK).store(CHUNK_FULL, Release);
    }
    let chunk = chunk.or_else(|| give_up(stream))?;
    // SAFETY: the chunk is mapped, this thread's, and free.
    unsafe { core::ptr::write_bytes((chunk + HEADER) as *mut u8, 0, CHUNK - HEADER) };
    let header = ChunkHeader {
        state: CHUNK_FREE,
        thread: stream.thread,
        process: stream.process,
        parent,
        started_ns: stream.started_ns,
        sequence: stream.sequence,
        template: Image::of_linker().template as u64,
        lost: stream.lost,
        reserved: [0; 2],
    };
    // SAFETY: as above.
    unsafe { (chunk as *mut ChunkHeader).write_volatile(header) };
    state_of(chunk).store(CHUNK_CURRENT, Release);
    stream.sequence += 1;
    stream.end = (chunk + CHUNK) as u64;
    Some(chunk + HEADER)
}

/// The next chunk of a flight recorder. The one behind it is forgotten, for what handlers may write there.
fn overwrite(stream: &RegionStream, slots: usize) -> usize {
    let base = stream.region as usize;
    let index = match stream.end {
        0 => 0,
        end => (end as usize - base - RING_OFFSET as usize) / CHUNK % slots,
    };
    state_of(chunk_at(base, (index + 1) % slots)).store(CHUNK_FREE, Release);
    state_of(chunk_at(base, index + 1)).store(CHUNK_FREE, Release);
    chunk_at(base, index)
}

/// A free chunk: of the regions that there are, of a new one, or one that comes back.
fn find_free(stream: &mut RegionStream) -> Option<usize> {
    if let Some(chunk) = known_free(stream) {
        IS_STALLED.store(false, Relaxed);
        return Some(chunk);
    }
    let may_grow = stream.more_regions + 1 < REGIONS.load(Relaxed);
    if may_grow && let Some(chunk) = new_region(stream) {
        return Some(chunk);
    }
    if stream.end == 0 || IS_STALLED.load(Relaxed) {
        return None;
    }
    for _ in 0..PATIENCE_MS.load(Relaxed) {
        system::sleep_ms(1);
        if let Some(chunk) = known_free(stream) {
            return Some(chunk);
        }
    }
    IS_STALLED.store(true, Relaxed);
    None
}

/// A free chunk of the region that is being filled, or of the next one, whose chunks are the oldest.
fn known_free(stream: &mut RegionStream) -> Option<usize> {
    let base = stream.region as usize;
    let from = match stream.end {
        0 => 0,
        end => (end as usize - base - RING_OFFSET as usize) / CHUNK,
    };
    let free = |base: usize, from: usize| (from..SLOTS as usize).find(|index| is_usable(base, *index)).map(|index| chunk_at(base, index));
    if let Some(chunk) = free(base, from) {
        return Some(chunk);
    }
    let next = region_head(base).next as usize;
    let chunk = free(next, 0)?;
    stream.region = next as u64;
    Some(chunk)
}

/// The first chunk of one region more, behind the one that is being filled.
fn new_region(stream: &mut RegionStream) -> Option<usize> {
    let new = state::another_region()?;
    finish_chunks(new);
    let chunk = (0..SLOTS as usize).find(|index| is_usable(new, *index)).map(|index| chunk_at(new, index));
    let base = stream.region as usize;
    let following = region_head(base).next;
    // SAFETY: the region is mapped and this thread's; nothing else refers to its beginning.
    unsafe {
        (new as *mut RegionStream).write_volatile(RegionStream { thread: 0, next: following, slots: 0, more_regions: 0, ..*stream });
        (&raw mut (*(base as *mut RegionStream)).next).write_volatile(new as u64);
    }
    stream.more_regions += 1;
    stream.region = new as u64;
    chunk
}

/// What is at the beginning of a region.
fn region_head(base: usize) -> RegionStream {
    // SAFETY: regions of stream images begin so, and are mapped as long as their thread lives.
    unsafe { (base as *const RegionStream).read_volatile() }
}

/// Whether a chunk and the one behind it are free.
fn is_usable(base: usize, index: usize) -> bool {
    let is_free = |index: usize| state_of(chunk_at(base, index)).load(core::sync::atomic::Ordering::Acquire) == CHUNK_FREE;
    is_free(index) && (index + 1 == SLOTS as usize || is_free(index + 1))
}

/// The chunk that was just filled, whose events are lost.
fn give_up(stream: &mut RegionStream) -> Option<usize> {
    if stream.end == 0 {
        return None;
    }
    stream.lost += CHUNK_EVENTS;
    // Another chunk takes its place in the stream.
    stream.sequence -= 1;
    Some(stream.end as usize - CHUNK)
}

/// Chunks that an ended thread was filling in a region do not change any more.
fn finish_chunks(base: usize) {
    for index in 0..SLOTS as usize {
        let _ = state_of(chunk_at(base, index)).compare_exchange(CHUNK_CURRENT, CHUNK_FULL, Release, Relaxed);
    }
}

fn chunk_at(base: usize, index: usize) -> usize {
    base + RING_OFFSET as usize + index * CHUNK
}

fn state_of(chunk: usize) -> &'static AtomicU32 {
    // SAFETY: the first word of a chunk of a mapped region; the recorder changes it by one write of that word.
    unsafe { AtomicU32::from_ptr(chunk as *mut u32) }
}

fn put(address: usize, word: u32) {
    // SAFETY: callers have the address of a word of their own chunk.
    unsafe { (address as *mut u32).write_volatile(word) };
}
