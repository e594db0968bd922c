//! Checks the protocol of chunks: a reader that records a whole program gets the written events in order, and all events that it misses are
//! counted as lost. A reader of a flight recorder accepts only events that were written at their place in the stream.

use crate::chunks;
use crate::model::{explore, let_scheduler_switch, serialise_tests, state, stream};
use crate::wire::layout::Layout;
use crate::wire::stream::{
    CHUNK_BYTES, CHUNK_CURRENT, CHUNK_EVENT_COUNT, CHUNK_FREE, CHUNK_FULL, CHUNK_RING_OFFSET_BYTES, SHADOW_BYTES, STREAM_CHUNKS_PER_REGION,
    StreamChunkHeader, ThreadStream,
};
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::alloc::{Layout as MemoryLayout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const CHUNK_SIZE: usize = CHUNK_BYTES as usize;
/// Number of chunks that the scenario writes.
const WRITTEN_CHUNKS: u64 = 9;
const OWN_CHUNKS: usize = 4;
/// Number of events at the start of each chunk that the scenario writes and checks.
const CHECKED_EVENTS: usize = 3;

struct Region(usize);

impl Region {
    fn memory_layout() -> MemoryLayout {
        MemoryLayout::from_size_align(1 << 20, SHADOW_BYTES as usize).unwrap()
    }

    fn new() -> Region {
        // SAFETY: the layout has a nonzero size.
        Region(unsafe { alloc_zeroed(Region::memory_layout()) } as usize)
    }

    fn chunk(&self, slot: usize) -> usize {
        self.0 + CHUNK_RING_OFFSET_BYTES as usize + slot * CHUNK_SIZE
    }

    fn header(&self, slot: usize) -> StreamChunkHeader {
        let_scheduler_switch();
        // SAFETY: the chunk is in this region, and only one thread runs at a time.
        StreamChunkHeader::read(unsafe { std::slice::from_raw_parts(self.chunk(slot) as *const u8, StreamChunkHeader::BYTES) }).unwrap()
    }

    /// Reads the first events of a chunk. Before each, the scheduler may switch threads.
    fn events(&self, slot: usize) -> [u32; CHECKED_EVENTS] {
        std::array::from_fn(|at| {
            let_scheduler_switch();
            // SAFETY: the chunk is in this region, and only one thread runs at a time.
            unsafe { (self.chunk(slot) as *const u32).add(stream::HEADER_SIZE / stream::WORD_SIZE + at).read_volatile() }
        })
    }

    /// Sets the state of a chunk, as a reader of the stream does with full chunks.
    fn set_state(&self, slot: usize, state: u32) {
        let_scheduler_switch();
        // SAFETY: the chunk is in this region, and only one thread runs at a time.
        unsafe { (self.chunk(slot) as *mut u32).write_volatile(state) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout.
        unsafe { dealloc(self.0 as *mut u8, Region::memory_layout()) };
    }
}

fn event(sequence: u64, at: usize) -> u32 {
    ((sequence as u32) << 8) + at as u32 + 1
}

/// Writes a stream as instrumented code would, but only the first events of each chunk. Returns the number of lost events.
fn write_stream(region: &Region) -> u64 {
    let mut thread = ThreadStream::default();
    stream::STREAM.store(&raw mut thread, SeqCst);
    chunks::begin_stream_at_region(region.0);
    for sequence in 0..WRITTEN_CHUNKS {
        for at in 0..CHECKED_EVENTS {
            let_scheduler_switch();
            let stopped = thread_cursor();
            set_cursor(stopped + stream::WORD_SIZE);
            let place = if stopped.is_multiple_of(CHUNK_SIZE) { chunks::find_room_for_event(region.0, stopped) } else { stopped };
            // SAFETY: the runtime returned this address, or it is that of the next event in the same chunk.
            unsafe { (place as *mut u32).write_volatile(event(sequence, at)) };
        }
        set_cursor(thread_cursor().next_multiple_of(CHUNK_SIZE));
    }
    stream::STREAM.store(std::ptr::null_mut(), SeqCst);
    // SAFETY: the region starts with the thread's stream.
    unsafe { (*(region.0 as *const crate::wire::stream::RegionStream)).lost }
}

fn thread_cursor() -> usize {
    stream::thread_stream().unwrap().cursor as usize
}

fn set_cursor(cursor: usize) {
    stream::thread_stream().unwrap().cursor = cursor as u64;
}

/// Reads and releases the next chunks of the stream, until none is available. `is_taken` says in which states chunks are read.
fn release_next_chunks(region: &Region, next: &mut u64, is_taken: impl Fn(u32) -> bool) {
    while let Some((slot, header)) =
        (0..OWN_CHUNKS).map(|slot| (slot, region.header(slot))).find(|(_, h)| is_taken(h.state) && h.sequence == *next)
    {
        assert_eq!(header.checksum, header.fields_checksum());
        // If a chunk was discarded, the one that replaces it has the same sequence number.
        let first = region.events(slot)[0] >> 8;
        assert!(u64::from(first) >= *next, "chunk {next} has the events of chunk {first}");
        assert_eq!(region.events(slot), std::array::from_fn(|at| event(first.into(), at)), "chunk {next}");
        region.set_state(slot, CHUNK_FREE);
        *next += 1;
    }
}

fn run_whole_program() {
    let region = Arc::new(Region::new());
    // Most of the region contains streams of other threads.
    (OWN_CHUNKS..STREAM_CHUNKS_PER_REGION as usize).for_each(|slot| region.set_state(slot, CHUNK_FULL));
    let is_over = Arc::new(AtomicBool::new(false));
    let recorder = {
        let (region, is_over) = (region.clone(), is_over.clone());
        shuttle::thread::spawn(move || {
            let mut next = 0;
            while !is_over.load(SeqCst) {
                release_next_chunks(&region, &mut next, |state| state == CHUNK_FULL);
                shuttle::thread::yield_now();
            }
            release_next_chunks(&region, &mut next, |state| state == CHUNK_FULL || state == CHUNK_CURRENT);
            next
        })
    };
    let lost = write_stream(&region);
    is_over.store(true, SeqCst);
    let taken = recorder.join().unwrap();
    assert_eq!(taken + lost / CHUNK_EVENT_COUNT, WRITTEN_CHUNKS, "{lost} events are lost");
}

/// Checks the events that two readings of a chunk agree on. A single reading may miss an event that was written in the meantime and yet
/// contain the next one.
fn check_readings(sequence: u64, readings: [[u32; CHECKED_EVENTS]; 2]) {
    let [first, second] = readings.map(|events| events.into_iter().filter(|event| *event != 0).collect::<Vec<u32>>());
    let believed = first.iter().zip(&second).take_while(|(one, other)| one == other).map(|(one, _)| *one);
    believed.enumerate().for_each(|(at, found)| assert_eq!(found, event(sequence, at), "chunk {sequence}: {readings:x?}"));
}

fn run_flight_recorder() {
    let region = Arc::new(Region::new());
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (region, is_over) = (region.clone(), is_over.clone());
        shuttle::thread::spawn(move || {
            loop {
                let is_last = is_over.load(SeqCst);
                for slot in 0..OWN_CHUNKS {
                    let before = region.header(slot);
                    let events = [region.events(slot), region.events(slot)];
                    let after = region.header(slot);
                    if before.state != CHUNK_FREE && after.state != CHUNK_FREE && before.sequence == after.sequence {
                        check_readings(before.sequence, events);
                    }
                }
                shuttle::thread::yield_now();
                if is_last {
                    break;
                }
            }
        })
    };
    assert_eq!(write_stream(&region), 0);
    is_over.store(true, SeqCst);
    reader.join().unwrap();
    let states: Vec<u32> = (0..OWN_CHUNKS).map(|slot| region.header(slot).state).collect();
    assert_eq!(states.iter().filter(|state| **state == CHUNK_CURRENT).count(), 1, "{states:?}");
}

#[test]
fn recorder_gets_events_in_order() {
    let _alone = serialise_tests();
    stream::FLIGHT_RECORDER_SLOT_COUNT.0.store(0, Relaxed);
    for max_wait_ms in [0, 50] {
        stream::MAX_RECORDER_WAIT_MS.0.store(max_wait_ms, Relaxed);
        explore(150, run_whole_program);
    }
}

#[test]
fn reader_of_flight_recorder_sees_only_written_events() {
    let _alone = serialise_tests();
    state::SPARE_REGIONS.lock().unwrap().clear();
    for slots in [3, 4] {
        stream::FLIGHT_RECORDER_SLOT_COUNT.0.store(slots, Relaxed);
        explore(1500, run_flight_recorder);
    }
}
