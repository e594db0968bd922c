//! Supplies the chunks of a thread's stream: its first chunk, and the next one when a chunk is full (see `stream.rs`).
//!
//! `tests/interleavings` runs this source under a model checker, against readers that follow the rules of `wire::live`.

use crate::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::image::OwnImage;
use crate::state;
use crate::stream::{HEADER_SIZE, MAX_WAIT_MS, RECORDER_SLOTS, REGION_LIMIT, ShadowFrames, WORD_SIZE, thread_stream};
use crate::system;
use crate::wire::stream::{
    CHUNK_BYTES, CHUNK_CURRENT, CHUNK_EVENTS, CHUNK_FREE, CHUNK_FULL, RING_OFFSET, RegionStream, SLOTS, StreamChunkHeader, TAG_INHERITED,
    TAG_MASK,
};

const CHUNK_SIZE: usize = CHUNK_BYTES as usize;
/// Maximum number of events kept from signal handlers that run between the moment the cursor reaches a chunk's end and the call of the
/// runtime. Further events are counted as lost.
const MAX_HANDLER_EVENTS: usize = 256;

/// True after a thread waited in vain for a chunk, until a chunk is released.
static IS_STALLED: AtomicBool = AtomicBool::new(false);

pub fn begin(base: usize) {
    start_stream(base, 0, &[]);
}

/// Starts the stream of a child of `fork` in the region at `base`. The child inherits the parent's `frames`.
pub fn begin_in_child(base: usize, frames: ShadowFrames) {
    start_stream(base, system::parent_id(), frames.slots());
    frames.release();
}

/// Starts a stream. `frames` are the shadow-stack slots that a child of `fork` inherits from its parent; empty otherwise.
fn start_stream(base: usize, parent: u32, frames: &[u32]) {
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
    // SAFETY: the region is mapped, belongs to this thread, and starts with this structure and the shadow stack.
    unsafe {
        (base as *mut RegionStream).write_volatile(stream);
        let slots = (base + HEADER_SIZE) as *mut u32;
        for (index, slot) in frames.iter().enumerate() {
            slots.add(index).write_volatile(*slot);
        }
        slots.add(frames.len()).write_volatile(0);
    }
    thread.shadow = (base + HEADER_SIZE + WORD_SIZE * frames.len()) as u64;
    let Some(first) = advance(stream_state(base), parent) else {
        thread.cursor = 0;
        return;
    };
    let mut to = first;
    for slot in frames {
        if to.is_multiple_of(CHUNK_SIZE) {
            let Some(next) = advance(stream_state(base), parent) else { break };
            to = next;
        }
        write_word(to, slot & !TAG_MASK | TAG_INHERITED);
        to += WORD_SIZE;
    }
    thread.cursor = to as u64;
}

/// Returns the stream's state, at the start of the calling thread's first region.
fn stream_state(base: usize) -> &'static mut RegionStream {
    // SAFETY: regions of stream images start with this structure; only this thread uses it, with signals blocked, one function at a time.
    unsafe { &mut *(base as *mut RegionStream) }
}

/// Finds room for an event in the calling thread's stream and returns the event's address. `base` is the thread's first region; the
/// cursor stopped at `stopped`.
pub fn find_room(base: usize, stopped: usize) -> usize {
    let Some(thread) = thread_stream() else { return discarding_slot() };
    let (stream, cursor) = (stream_state(base), thread.cursor as usize);
    if stopped != 0 && stopped == stream.end as usize {
        // Keep the events that a signal handler wrote after the cursor was incremented and before this call.
        let following = stopped + WORD_SIZE;
        let written = cursor.saturating_sub(following) / WORD_SIZE;
        let mut more = [0u32; MAX_HANDLER_EVENTS];
        for (index, word) in more.iter_mut().enumerate().take(written) {
            // SAFETY: the word is in the free chunk after the full one. That chunk may become the next one.
            *word = unsafe { ((following + index * WORD_SIZE) as *const u32).read_volatile() };
        }
        stream.lost += written.saturating_sub(MAX_HANDLER_EVENTS) as u64;
        let Some(to) = advance(stream, 0) else { return discarding_slot() };
        let kept = written.min(MAX_HANDLER_EVENTS);
        for (index, word) in more.iter().enumerate().take(kept) {
            write_word(to + (index + 1) * WORD_SIZE, *word);
        }
        thread.cursor = (to + (kept + 1) * WORD_SIZE) as u64;
        return to;
    }
    let end = stream.end as usize;
    if end != 0 && (end - CHUNK_SIZE + HEADER_SIZE..end).contains(&cursor) {
        // The thread has just started, or a signal handler's last event has already switched chunks.
        thread.cursor += WORD_SIZE as u64;
        return cursor;
    }
    if stopped != 0 {
        // A signal handler filled the entire next chunk.
        stream.lost += CHUNK_BYTES / 4;
    }
    let Some(to) = advance(stream, 0) else { return discarding_slot() };
    thread.cursor = (to + WORD_SIZE) as u64;
    to
}

/// Returns the address of a word that is never read, for events for which there is no memory.
pub fn discarding_slot() -> usize {
    static DISCARDED_WORD: AtomicU32 = AtomicU32::new(0);
    if let Some(thread) = thread_stream() {
        thread.cursor = 0;
    }
    DISCARDED_WORD.as_ptr() as usize
}

/// Finishes the current chunk and starts a new one. Returns the address of the new chunk's first event, or `None` if the stream has no
/// chunk and cannot get one.
fn advance(stream: &mut RegionStream, parent: u32) -> Option<usize> {
    let before = stream.end as usize;
    let chunk = match stream.slots {
        0 => find_free(stream),
        slots => Some(reuse_oldest_chunk(stream, slots as usize)),
    };
    // The recorder does not read a discarded chunk, because it was never marked full.
    if chunk.is_some() && before != 0 {
        chunk_state(before - CHUNK_SIZE).store(CHUNK_FULL, Release);
    }
    let chunk = chunk.or_else(|| discard_current(stream))?;
    // SAFETY: the chunk is mapped, belongs to this thread, and is free.
    unsafe { core::ptr::write_bytes((chunk + HEADER_SIZE) as *mut u8, 0, CHUNK_SIZE - HEADER_SIZE) };
    let mut header = StreamChunkHeader {
        state: CHUNK_FREE,
        thread: stream.thread,
        process: stream.process,
        parent,
        started_ns: stream.started_ns,
        sequence: stream.sequence,
        template: OwnImage::from_linker().template as u64,
        lost: stream.lost,
        checksum: 0,
        reserved: 0,
    };
    header.checksum = header.fields_checksum();
    // SAFETY: as above.
    unsafe { (chunk as *mut StreamChunkHeader).write_volatile(header) };
    chunk_state(chunk).store(CHUNK_CURRENT, Release);
    stream.sequence += 1;
    stream.end = (chunk + CHUNK_SIZE) as u64;
    Some(chunk + HEADER_SIZE)
}

/// Returns the next chunk of a flight recorder. Frees the chunk after it for events of signal handlers.
fn reuse_oldest_chunk(stream: &RegionStream, slots: usize) -> usize {
    let base = stream.region as usize;
    let index = match stream.end {
        0 => 0,
        end => (end as usize - base - RING_OFFSET as usize) / CHUNK_SIZE % slots,
    };
    chunk_state(chunk_at(base, (index + 1) % slots)).store(CHUNK_FREE, Release);
    chunk_state(chunk_at(base, index + 1)).store(CHUNK_FREE, Release);
    chunk_at(base, index)
}

/// Finds a free chunk in the thread's regions or in an additional region. Waits for the recorder to release a chunk if there is none.
fn find_free(stream: &mut RegionStream) -> Option<usize> {
    if let Some(chunk) = find_free_in_ring(stream) {
        IS_STALLED.store(false, Relaxed);
        return Some(chunk);
    }
    let may_grow = stream.more_regions + 1 < REGION_LIMIT.load(Relaxed);
    if may_grow && let Some(chunk) = append_region(stream) {
        return Some(chunk);
    }
    if stream.end == 0 || IS_STALLED.load(Relaxed) {
        return None;
    }
    for _ in 0..MAX_WAIT_MS.load(Relaxed) {
        system::sleep_ms(1);
        if let Some(chunk) = find_free_in_ring(stream) {
            return Some(chunk);
        }
    }
    IS_STALLED.store(true, Relaxed);
    None
}

/// Finds a free chunk in the current region, or in the next one, whose chunks are the oldest.
fn find_free_in_ring(stream: &mut RegionStream) -> Option<usize> {
    let base = stream.region as usize;
    // The last chunk is in this region, because `region` and `end` change together. Only the first chunk has no predecessor.
    let from = match stream.end {
        0 => 0,
        end => (end as usize).wrapping_sub(chunk_at(base, 0)) / CHUNK_SIZE,
    };
    let free = |base: usize, from: usize| (from..SLOTS as usize).find(|index| is_usable(base, *index)).map(|index| chunk_at(base, index));
    if let Some(chunk) = free(base, from) {
        return Some(chunk);
    }
    let next = next_in_ring(stream, base) as usize;
    let chunk = free(next, 0)?;
    stream.region = next as u64;
    Some(chunk)
}

/// Adds a region to the ring after the current one, and returns its first free chunk. Returns `None` if no region is available. Also
/// returns `None`, although the region is now in the ring, if all of its chunks are unread chunks of a thread that has ended.
fn append_region(stream: &mut RegionStream) -> Option<usize> {
    let new = state::add_region()?;
    finish_chunks(new);
    let base = stream.region as usize;
    let region = RegionStream { thread: 0, next: next_in_ring(stream, base), slots: 0, more_regions: 0, ..*stream };
    // SAFETY: the region is mapped, belongs to this thread, and is new, so nothing else refers to it.
    unsafe { (new as *mut RegionStream).write_volatile(region) };
    stream.more_regions += 1;
    if base == first_region(stream) {
        stream.next = new as u64;
    } else {
        // SAFETY: the region is mapped, belongs to this thread, and is not the one that `stream` is in.
        unsafe { (&raw mut (*(base as *mut RegionStream)).next).write_volatile(new as u64) };
    }
    let chunk = (0..SLOTS as usize).find(|index| is_usable(new, *index)).map(|index| chunk_at(new, index))?;
    // The next chunk is in the new region. Without a free chunk, `end` and `region` must not change.
    stream.region = new as u64;
    Some(chunk)
}

/// Returns the address of the region in which the thread's stream starts. `stream` is that region's header.
fn first_region(stream: &RegionStream) -> usize {
    core::ptr::from_ref(stream) as usize
}

/// Returns the address of the region that follows the region at `base` in the thread's ring.
fn next_in_ring(stream: &RegionStream, base: usize) -> u64 {
    if base == first_region(stream) {
        return stream.next;
    }
    // SAFETY: regions of stream images start with this structure, and are mapped while their thread lives. `stream` is in a different
    // region.
    unsafe { (&raw const (*(base as *const RegionStream)).next).read_volatile() }
}

/// Returns true if a chunk and the next chunk are free.
fn is_usable(base: usize, index: usize) -> bool {
    let is_free = |index: usize| chunk_state(chunk_at(base, index)).load(Acquire) == CHUNK_FREE;
    is_free(index) && (index + 1 == SLOTS as usize || is_free(index + 1))
}

/// Discards the events of the current chunk and returns it for reuse.
fn discard_current(stream: &mut RegionStream) -> Option<usize> {
    if stream.end == 0 {
        return None;
    }
    stream.lost += CHUNK_EVENTS;
    // The next chunk gets this chunk's sequence number.
    stream.sequence -= 1;
    Some(stream.end as usize - CHUNK_SIZE)
}

/// Marks the unfinished chunks of a region as full. A thread that has ended was filling them.
fn finish_chunks(base: usize) {
    for index in 0..SLOTS as usize {
        let _ = chunk_state(chunk_at(base, index)).compare_exchange(CHUNK_CURRENT, CHUNK_FULL, Release, Relaxed);
    }
}

fn chunk_at(base: usize, index: usize) -> usize {
    base + RING_OFFSET as usize + index * CHUNK_SIZE
}

fn chunk_state(chunk: usize) -> &'static AtomicU32 {
    // SAFETY: the address is the first word of a chunk in a mapped region; the recorder changes that word with a single store.
    unsafe { AtomicU32::from_ptr(chunk as *mut u32) }
}

fn write_word(address: usize, word: u32) {
    // SAFETY: callers pass the address of a word in their own chunk.
    unsafe { (address as *mut u32).write_volatile(word) };
}
