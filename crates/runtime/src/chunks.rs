//! Supplies the chunks of memory into which a thread writes its stream of events: the first chunk, and another one whenever a chunk is full
//! (see `stream.rs`).
//!
//! `tests/interleavings` runs this source under a model checker, against readers that follow the rules of `wire::live`.

use crate::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::image::OwnImage;
use crate::state;
use crate::stream::{
    FLIGHT_RECORDER_SLOT_COUNT, HEADER_SIZE, MAX_RECORDER_WAIT_MS, MAX_STREAM_REGIONS, ShadowFrames, WORD_SIZE, thread_stream,
};
use crate::system;
use crate::wire::stream::{
    CHUNK_BYTES, CHUNK_CURRENT, CHUNK_EVENT_COUNT, CHUNK_FREE, CHUNK_FULL, CHUNK_RING_OFFSET_BYTES, RegionStream, STREAM_CHUNKS_PER_REGION,
    StreamChunkHeader, TAG_INHERITED, TAG_MASK,
};

const CHUNK_SIZE: usize = CHUNK_BYTES as usize;
/// Maximum number of events that are saved if signal handlers write them between the moment when a chunk becomes full and the call of the
/// runtime. Further events are counted as lost.
const MAX_SIGNAL_HANDLER_EVENTS: usize = 256;

/// True if a thread has waited in vain for a chunk and none has been released since. Then no thread waits.
static IS_RECORDER_STALLED: AtomicBool = AtomicBool::new(false);

pub fn begin_stream_at_region(base: usize) {
    start_stream(base, 0, &[]);
}

/// Starts the stream of a child of `fork` in the region at `base`. `frames` are the functions that were active in the parent.
pub fn begin_stream_in_child(base: usize, frames: ShadowFrames) {
    start_stream(base, system::parent_id(), frames.slots());
    frames.release();
}

/// Starts a stream in the region at `base`. `frames` are the shadow-stack slots that a child of `fork` inherits from its parent; empty
/// otherwise.
fn start_stream(base: usize, parent: u32, frames: &[u32]) {
    let Some(thread) = thread_stream() else { return };
    let stream = RegionStream {
        thread: system::thread_id(),
        process: system::process_id(),
        slots: FLIGHT_RECORDER_SLOT_COUNT.load(Relaxed),
        more_regions: 0,
        started_ns: system::now_ns(),
        sequence: 0,
        lost: 0,
        end: 0,
        region: base as u64,
        next: base as u64,
    };
    mark_current_chunk_full(base);
    // SAFETY: the region is mapped, belongs to this thread, and starts with a `RegionStream` followed by the shadow stack.
    unsafe {
        (base as *mut RegionStream).write_volatile(stream);
        let slots = (base + HEADER_SIZE) as *mut u32;
        for (index, slot) in frames.iter().enumerate() {
            slots.add(index).write_volatile(*slot);
        }
        slots.add(frames.len()).write_volatile(0);
    }
    thread.shadow = (base + HEADER_SIZE + WORD_SIZE * frames.len()) as u64;
    let Some(first) = start_next_chunk(region_stream_at(base), parent) else {
        thread.cursor = 0;
        return;
    };
    let mut to = first;
    for slot in frames {
        if to.is_multiple_of(CHUNK_SIZE) {
            let Some(next) = start_next_chunk(region_stream_at(base), parent) else { break };
            to = next;
        }
        write_word(to, slot & !TAG_MASK | TAG_INHERITED);
        to += WORD_SIZE;
    }
    thread.cursor = to as u64;
}

/// Returns the state of the calling thread's stream, which is at the start of the thread's first region.
fn region_stream_at(base: usize) -> &'static mut RegionStream {
    // SAFETY: a region in a stream build starts with this structure. Only this thread uses it, with signals blocked, in one function at a
    // time.
    unsafe { &mut *(base as *mut RegionStream) }
}

/// Finds room for an event in the calling thread's stream. Returns the event's address. `base` is the thread's first region; `stopped` is
/// where the cursor reached the end of a chunk, or 0.
pub fn find_room_for_event(base: usize, stopped: usize) -> usize {
    let Some(thread) = thread_stream() else { return discarded_event_address() };
    let (stream, cursor) = (region_stream_at(base), thread.cursor as usize);
    if stopped != 0 && stopped == stream.end as usize {
        // A signal handler may have written events after the cursor was incremented and before this call. Keep them.
        let following = stopped + WORD_SIZE;
        let written = cursor.saturating_sub(following) / WORD_SIZE;
        let mut more = [0u32; MAX_SIGNAL_HANDLER_EVENTS];
        for (index, word) in more.iter_mut().enumerate().take(written) {
            // SAFETY: the word is in the chunk after the full one, which is free and may become the next chunk.
            *word = unsafe { ((following + index * WORD_SIZE) as *const u32).read_volatile() };
        }
        stream.lost += written.saturating_sub(MAX_SIGNAL_HANDLER_EVENTS) as u64;
        let Some(to) = start_next_chunk(stream, 0) else { return discarded_event_address() };
        let kept = written.min(MAX_SIGNAL_HANDLER_EVENTS);
        for (index, word) in more.iter().enumerate().take(kept) {
            write_word(to + (index + 1) * WORD_SIZE, *word);
        }
        thread.cursor = (to + (kept + 1) * WORD_SIZE) as u64;
        return to;
    }
    let end = stream.end as usize;
    if end != 0 && (end - CHUNK_SIZE + HEADER_SIZE..end).contains(&cursor) {
        // The thread has just started, or another chunk was already started for the last event of a signal handler.
        thread.cursor += WORD_SIZE as u64;
        return cursor;
    }
    if stopped != 0 {
        // A signal handler filled the entire next chunk.
        stream.lost += CHUNK_BYTES / 4;
    }
    let Some(to) = start_next_chunk(stream, 0) else { return discarded_event_address() };
    thread.cursor = (to + WORD_SIZE) as u64;
    to
}

/// Returns the address of a word that is never read, where events are written if there is no memory for them.
pub fn discarded_event_address() -> usize {
    static WORD_FOR_DISCARDED_EVENTS: AtomicU32 = AtomicU32::new(0);
    if let Some(thread) = thread_stream() {
        thread.cursor = 0;
    }
    WORD_FOR_DISCARDED_EVENTS.as_ptr() as usize
}

/// Finishes the current chunk and starts a new one. Returns the address of the new chunk's first event; `None` if the stream has no chunk
/// yet and cannot get one.
fn start_next_chunk(stream: &mut RegionStream, parent: u32) -> Option<usize> {
    let before = stream.end as usize;
    let chunk = match stream.slots {
        0 => find_free_chunk(stream),
        slots => Some(reuse_oldest_chunk(stream, slots as usize)),
    };
    // If the current chunk is reused, it must not be marked as full, so that the reader of the stream ignores it.
    if chunk.is_some() && before != 0 {
        chunk_state(before - CHUNK_SIZE).store(CHUNK_FULL, Release);
    }
    let chunk = chunk.or_else(|| discard_events_of_current_chunk(stream))?;
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
    // SAFETY: the chunk is mapped and belongs to this thread.
    unsafe { (chunk as *mut StreamChunkHeader).write_volatile(header) };
    chunk_state(chunk).store(CHUNK_CURRENT, Release);
    stream.sequence += 1;
    stream.end = (chunk + CHUNK_SIZE) as u64;
    Some(chunk + HEADER_SIZE)
}

/// Returns the chunk that a flight recorder overwrites next. Frees the chunk after it, into which signal handlers may write.
fn reuse_oldest_chunk(stream: &RegionStream, slots: usize) -> usize {
    let base = stream.region as usize;
    let index = match stream.end {
        0 => 0,
        end => (end as usize - base - CHUNK_RING_OFFSET_BYTES as usize) / CHUNK_SIZE % slots,
    };
    chunk_state(chunk_at(base, (index + 1) % slots)).store(CHUNK_FREE, Release);
    chunk_state(chunk_at(base, index + 1)).store(CHUNK_FREE, Release);
    chunk_at(base, index)
}

/// Finds a free chunk in the thread's regions, or adds a region. If neither is possible, waits until the reader of the stream releases a
/// chunk.
fn find_free_chunk(stream: &mut RegionStream) -> Option<usize> {
    if let Some(chunk) = find_free_chunk_in_ring(stream) {
        IS_RECORDER_STALLED.store(false, Relaxed);
        return Some(chunk);
    }
    let may_grow = stream.more_regions + 1 < MAX_STREAM_REGIONS.load(Relaxed);
    if may_grow && let Some(chunk) = append_region(stream) {
        return Some(chunk);
    }
    if stream.end == 0 || IS_RECORDER_STALLED.load(Relaxed) {
        return None;
    }
    for _ in 0..MAX_RECORDER_WAIT_MS.load(Relaxed) {
        system::sleep_ms(1);
        if let Some(chunk) = find_free_chunk_in_ring(stream) {
            return Some(chunk);
        }
    }
    IS_RECORDER_STALLED.store(true, Relaxed);
    None
}

/// Finds a free chunk in the current region or in the next region of the ring, which has the oldest chunks.
fn find_free_chunk_in_ring(stream: &mut RegionStream) -> Option<usize> {
    let base = stream.region as usize;
    // The current chunk is in this region, because `region` and `end` change together. Only the first chunk has none before it.
    let from = match stream.end {
        0 => 0,
        end => (end as usize).wrapping_sub(chunk_at(base, 0)) / CHUNK_SIZE,
    };
    let free = |base: usize, from: usize| {
        (from..STREAM_CHUNKS_PER_REGION as usize).find(|index| are_chunk_and_next_free(base, *index)).map(|index| chunk_at(base, index))
    };
    if let Some(chunk) = free(base, from) {
        return Some(chunk);
    }
    let next = next_region_in_ring(stream, base) as usize;
    let chunk = free(next, 0)?;
    stream.region = next as u64;
    Some(chunk)
}

/// Adds a region to the ring after the current one. Returns its first free chunk; `None` if no region is available, or if all chunks of the
/// new one contain unread events of a thread that has ended.
fn append_region(stream: &mut RegionStream) -> Option<usize> {
    let new = state::add_region()?;
    mark_current_chunk_full(new);
    let base = stream.region as usize;
    let region = RegionStream { thread: 0, next: next_region_in_ring(stream, base), slots: 0, more_regions: 0, ..*stream };
    // SAFETY: the region is mapped, belongs to this thread, and is new, so no reference to it exists.
    unsafe { (new as *mut RegionStream).write_volatile(region) };
    stream.more_regions += 1;
    if base == first_region(stream) {
        stream.next = new as u64;
    } else {
        // SAFETY: the region is mapped and belongs to this thread, and `stream` refers to a different region.
        unsafe { (&raw mut (*(base as *mut RegionStream)).next).write_volatile(new as u64) };
    }
    let chunk =
        (0..STREAM_CHUNKS_PER_REGION as usize).find(|index| are_chunk_and_next_free(new, *index)).map(|index| chunk_at(new, index))?;
    // From here on, the current chunk is in the new region. If it has no free chunk, `end` and `region` must stay the same.
    stream.region = new as u64;
    Some(chunk)
}

/// Returns the address of the region in which the thread's stream starts. `stream` is that region's header.
fn first_region(stream: &RegionStream) -> usize {
    core::ptr::from_ref(stream) as usize
}

/// Returns the address of the region that follows the one at `base` in the thread's ring of regions.
fn next_region_in_ring(stream: &RegionStream, base: usize) -> u64 {
    if base == first_region(stream) {
        return stream.next;
    }
    // SAFETY: regions of stream builds start with this structure, and stay mapped while their thread lives. `stream` refers to a different
    // region.
    unsafe { (&raw const (*(base as *const RegionStream)).next).read_volatile() }
}

/// Returns true if a chunk and the one after it are free. Signal handlers may write into the latter.
fn are_chunk_and_next_free(base: usize, index: usize) -> bool {
    let is_free = |index: usize| chunk_state(chunk_at(base, index)).load(Acquire) == CHUNK_FREE;
    is_free(index) && (index + 1 == STREAM_CHUNKS_PER_REGION as usize || is_free(index + 1))
}

/// Discards the events in the current chunk, and returns the chunk for reuse.
fn discard_events_of_current_chunk(stream: &mut RegionStream) -> Option<usize> {
    if stream.end == 0 {
        return None;
    }
    stream.lost += CHUNK_EVENT_COUNT;
    // The chunk that replaces it gets the same sequence number.
    stream.sequence -= 1;
    Some(stream.end as usize - CHUNK_SIZE)
}

/// Marks the chunks of a region that were not finished, because their thread has ended, as full.
fn mark_current_chunk_full(base: usize) {
    for index in 0..STREAM_CHUNKS_PER_REGION as usize {
        let _ = chunk_state(chunk_at(base, index)).compare_exchange(CHUNK_CURRENT, CHUNK_FULL, Release, Relaxed);
    }
}

fn chunk_at(base: usize, index: usize) -> usize {
    base + CHUNK_RING_OFFSET_BYTES as usize + index * CHUNK_SIZE
}

fn chunk_state(chunk: usize) -> &'static AtomicU32 {
    // SAFETY: the address is that of a chunk in a mapped region. A chunk starts with this word, which the reader of the stream changes by a
    // single store.
    unsafe { AtomicU32::from_ptr(chunk as *mut u32) }
}

fn write_word(address: usize, word: u32) {
    // SAFETY: callers pass the address of a word in their own chunk.
    unsafe { (address as *mut u32).write_volatile(word) };
}
