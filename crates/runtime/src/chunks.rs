//! Chunks: where a thread's stream begins, and where it goes on when a chunk is full (see `stream.rs`).
//!
//! `tests/interleavings` runs this source under a checker of interleavings, against readers that follow the rules of `wire::live`.

use crate::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::image::Image;
use crate::state;
use crate::stream::{HEADER, PATIENCE_MS, RECORDER_SLOTS, REGIONS, ShadowFrames, WORD, thread_stream};
use crate::system;
use crate::wire::stream::{
    CHUNK_BYTES, CHUNK_CURRENT, CHUNK_EVENTS, CHUNK_FREE, CHUNK_FULL, ChunkHeader, RING_OFFSET, RegionStream, SLOTS, TAG_INHERITED,
    TAG_MASK,
};

const CHUNK: usize = CHUNK_BYTES as usize;
/// So many events of a signal handler are kept that comes between the end of a chunk and the runtime; more are lost, and counted.
const MOST_BEHIND: usize = 256;

/// A thread waited in vain, and no chunk came back since then.
static IS_STALLED: AtomicBool = AtomicBool::new(false);

/// The calling thread writes to the region at `base` from now on.
pub fn begin(base: usize) {
    begin_after(base, 0, &[]);
}

/// The stream of a child of `fork` begins with its parent's frames, in the region at `base`.
pub fn begin_in_child(base: usize, frames: ShadowFrames) {
    begin_after(base, system::parent_id(), frames.slots());
    frames.release();
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

/// The calling thread's first region, which holds its stream's state.
fn home(base: usize) -> &'static mut RegionStream {
    // SAFETY: regions of stream images begin so; this thread alone uses it, with signals blocked, and in one function at a time.
    unsafe { &mut *(base as *mut RegionStream) }
}

/// Finds room for an event in the stream of the calling thread, whose region is at `base` and whose cursor stopped there; gives its
/// address.
pub fn find_room(base: usize, stopped: usize) -> usize {
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
pub fn nowhere() -> usize {
    static NOWHERE: AtomicU32 = AtomicU32::new(0);
    if let Some(thread) = thread_stream() {
        thread.cursor = 0;
    }
    NOWHERE.as_ptr() as usize
}

/// Finishes the chunk that is being filled and begins another; gives the address of its first event. `None`: there is
/// no room, not even at first.
fn advance(stream: &mut RegionStream, parent: u32) -> Option<usize> {
    let before = stream.end as usize;
    let chunk = match stream.slots {
        0 => find_free(stream),
        slots => Some(overwrite(stream, slots as usize)),
    };
    // A chunk that is given up was never full, so that the recorder does not read it.
    if chunk.is_some() && before != 0 {
        state_of(before - CHUNK).store(CHUNK_FULL, Release);
    }
    let chunk = chunk.or_else(|| give_up(stream))?;
    // SAFETY: the chunk is mapped, this thread's, and free.
    unsafe { core::ptr::write_bytes((chunk + HEADER) as *mut u8, 0, CHUNK - HEADER) };
    let mut header = ChunkHeader {
        state: CHUNK_FREE,
        thread: stream.thread,
        process: stream.process,
        parent,
        started_ns: stream.started_ns,
        sequence: stream.sequence,
        template: Image::from_linker().template as u64,
        lost: stream.lost,
        checksum: 0,
        reserved: 0,
    };
    header.checksum = header.fields_checksum();
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
    // The chunk that was filled is one of this region: `region` and `end` change together, but for the first.
    let from = match stream.end {
        0 => 0,
        end => (end as usize).wrapping_sub(chunk_at(base, 0)) / CHUNK,
    };
    let free = |base: usize, from: usize| (from..SLOTS as usize).find(|index| is_usable(base, *index)).map(|index| chunk_at(base, index));
    if let Some(chunk) = free(base, from) {
        return Some(chunk);
    }
    let next = following(stream, base) as usize;
    let chunk = free(next, 0)?;
    stream.region = next as u64;
    Some(chunk)
}

/// The first chunk of one region more, behind the one that is being filled. `None`: there is no region, or all chunks of it are to be
/// read yet, since a thread that ended has filled them; it is one of the ring all the same, and its chunks come back.
fn new_region(stream: &mut RegionStream) -> Option<usize> {
    let new = state::another_region()?;
    finish_chunks(new);
    let base = stream.region as usize;
    let head = RegionStream { thread: 0, next: following(stream, base), slots: 0, more_regions: 0, ..*stream };
    // SAFETY: the region is mapped and this thread's, and nothing else refers to its beginning: it is new.
    unsafe { (new as *mut RegionStream).write_volatile(head) };
    stream.more_regions += 1;
    if base == first_region(stream) {
        stream.next = new as u64;
    } else {
        // SAFETY: the region is mapped and this thread's, and its beginning is another than `stream`.
        unsafe { (&raw mut (*(base as *mut RegionStream)).next).write_volatile(new as u64) };
    }
    let chunk = (0..SLOTS as usize).find(|index| is_usable(new, *index)).map(|index| chunk_at(new, index))?;
    // The chunk that is filled next is one of the new region; until there is one, `end` and `region` stay as they are.
    stream.region = new as u64;
    Some(chunk)
}

/// The region whose beginning a thread's stream is.
fn first_region(stream: &RegionStream) -> usize {
    core::ptr::from_ref(stream) as usize
}

/// The region behind the one at `base` in the ring of a thread's regions.
fn following(stream: &RegionStream, base: usize) -> u64 {
    if base == first_region(stream) {
        return stream.next;
    }
    // SAFETY: regions of stream images begin so, and are mapped as long as their thread lives. This one is not the beginning of `stream`'s.
    unsafe { (&raw const (*(base as *const RegionStream)).next).read_volatile() }
}

/// Whether a chunk and the one behind it are free.
fn is_usable(base: usize, index: usize) -> bool {
    let is_free = |index: usize| state_of(chunk_at(base, index)).load(Acquire) == CHUNK_FREE;
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
