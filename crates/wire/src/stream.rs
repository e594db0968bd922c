//! Layouts of streams. A stream is what each thread of a *stream build* writes: a program that records its paths in the order of execution.
//!
//! A stream build does not count. Where a counting build increments a counter, a stream build appends an *event*, a four-byte word that is
//! unique in the image. The events ([`Event`]) give the order of paths and calls as well as their counts. [`crate::live`] explains how
//! files can be read while they are written. Invariants: no event is 0; the events of a chunk end with the last nonzero word.

// stream file  RawHeader (kind STREAM_FILE) ... regions, one or more per thread
// region       0              64           SHADOW_BYTES     CHUNK_RING_OFFSET_BYTES        STREAM_REGION_WORDS * 8
//              | RegionStream | shadow stack | limit slot | | chunk 0 | ... | last chunk    | slack | holder, lost
// chunk        0                   64                CHUNK_BYTES
//              | StreamChunkHeader | events, then zeros |
//
// - The *cursor* of a thread ([`STREAM_SYMBOL`]) is the address of its next event. An event is written by an addition to the cursor (one
//   instruction, so that a signal handler in between loses nothing) and a store. If the cursor was a multiple of [`CHUNK_BYTES`], or 0,
//   the runtime finds the next chunk first.
// - The *shadow stack* has a slot for each live frame of the image's functions: the event of the frame's last call, or of its entry. The
//   first slot that is 0 ends the stack. A function clears its slot when its frame ends.
// - A signal handler may interrupt a thread after the addition that reaches the end of a chunk, but before the runtime finds the next one.
//   The handler then writes beyond the chunk. Therefore, the chunk after the current one is always free.

use crate::Checksum;

/// Version of files of kind [`crate::file_header::FileKind::STREAM_FILE`].
pub const STREAM_VERSION: u32 = 3;
/// Size of a chunk in bytes; cursors stop at multiples of it.
pub const CHUNK_BYTES: u64 = 1 << 14;
/// Size in bytes of the shadow stack and the header before it. Also the alignment of a mapped region.
pub const SHADOW_BYTES: u64 = 1 << 18;
/// Offset of the first chunk in a region.
pub const CHUNK_RING_OFFSET_BYTES: u64 = SHADOW_BYTES + CHUNK_BYTES;
/// Number of chunks in a region.
pub const STREAM_CHUNKS_PER_REGION: u64 = 45;
/// Number of words (`u64`) in a region before its tail, as in [`crate::region_stride`].
pub const STREAM_REGION_WORDS: u64 = (CHUNK_RING_OFFSET_BYTES + (STREAM_CHUNKS_PER_REGION + 1) * CHUNK_BYTES) / 8;
/// Size in bytes of [`RegionStream`] and of [`StreamChunkHeader`].
pub const STREAM_HEADER_BYTES: u64 = 64;
/// Number of events in a chunk.
pub const CHUNK_EVENT_COUNT: u64 = (CHUNK_BYTES - STREAM_HEADER_BYTES) / 4;
/// Maximum number of events that a flight recorder can keep per thread.
pub const MAX_LAST_EVENT_COUNT: u64 = (STREAM_CHUNKS_PER_REGION - 2) * CHUNK_EVENT_COUNT;

/// Thread-local [`ThreadStream`], hidden in each stream image.
pub const STREAM_SYMBOL: &str = "__trodden_stream";
/// Function `() -> *mut ThreadStream` in images with [`STREAM_SYMBOL`]. Returns the calling thread's instance.
pub const STREAM_ADDRESS_SYMBOL: &str = "__trodden_stream_place";
/// Code to jump to at the end of a chunk, with the cursor in `rax` and the return address in `r11`. It returns in `rax` the address at
/// which to write the event. It preserves all registers except `rax`, `r11` and flags.
pub const NEXT_CHUNK_SYMBOL: &str = "__trodden_stream_next";
/// Code to jump to when the shadow stack pointer is not the address of a slot: at the thread's first frame, or when the stack is full. The
/// pointer is in `rax`, the return address in `r11`. Returns the frame's slot in `rax`, and sets the thread's pointer to the address after
/// that slot.
pub const NEXT_SLOT_SYMBOL: &str = "__trodden_stream_enter";
/// Environment variable: `whole` or `whole,REGIONS,MILLISECONDS`, or the number of events that the flight recorder keeps per thread.
pub const STREAM_ENVIRONMENT_VARIABLE: &str = "TRODDEN_STREAM";
/// Number of events that the flight recorder keeps by default.
pub const DEFAULT_LAST_EVENTS: u64 = 1000;
/// Default maximum number of regions per thread. Each is about 1 MiB of the file. When all are full, the thread waits for the recorder.
pub const DEFAULT_REGIONS: u64 = 64;
/// Maximum number of regions that can be requested.
pub const MAX_STREAM_REGION_COUNT: u64 = 1 << 20;
/// Default maximum time, in milliseconds, that a thread waits for the recorder to release a chunk. After that, the thread discards events
/// and counts the discarded ones.
pub const DEFAULT_MAX_WAIT_MS: u64 = 2000;
/// Maximum value, in milliseconds, that can be requested instead of [`DEFAULT_MAX_WAIT_MS`].
pub const MAX_WAIT_LIMIT_MS: u64 = 3_600_000;

/// A thread's stream state in thread-local memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStream {
    /// Address of the next event.
    pub cursor: u64,
    /// Address of the shadow stack slot for the next frame.
    pub shadow: u64,
}

/// Start of a region.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionStream {
    /// Id of the thread. 0 if the region only adds chunks to a thread's first region.
    pub thread: u32,
    /// Process id.
    pub process: u32,
    /// Number of chunks that a flight recorder uses in turn. 0 if the stream is recorded completely.
    pub slots: u32,
    /// The number of the thread's other regions. Only the thread's first region has it.
    pub more_regions: u32,
    /// When the thread began to write its stream, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Sequence number of the next chunk of the stream.
    pub sequence: u64,
    /// Number of events lost so far.
    pub lost: u64,
    /// Address at which the current chunk ends, in the process.
    pub end: u64,
    /// Address of the region with the current chunk, in the process.
    pub region: u64,
    /// Address of the thread's next region, in the process. The regions form a ring.
    pub next: u64,
}

/// Start of a chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamChunkHeader {
    /// [`CHUNK_FREE`], [`CHUNK_CURRENT`] or [`CHUNK_FULL`].
    pub state: u32,
    /// Id of the thread that writes the chunk.
    pub thread: u32,
    /// Id of the thread's process.
    pub process: u32,
    /// ID of the parent process if it forked while this stream had frames; else 0.
    pub parent: u32,
    /// When the stream began; together with process and thread it identifies the stream.
    pub started_ns: u64,
    /// Number of the chunk in its stream, from 0.
    pub sequence: u64,
    /// Address of the counter template in the process.
    pub template: u64,
    /// Number of the stream's events that were lost before this chunk.
    pub lost: u64,
    /// [`StreamChunkHeader::fields_checksum`].
    pub checksum: u64,
    /// Always 0.
    pub reserved: u64,
}

impl StreamChunkHeader {
    /// Computes the checksum of all fields but the state. They do not change while the chunk is in use.
    #[inline]
    pub const fn fields_checksum(&self) -> u64 {
        let (thread, process) = (self.thread as u64, self.process as u64);
        let sum = Checksum::new().add_word(thread << 32 | process).add_word(self.parent as u64).add_word(self.started_ns);
        sum.add_word(self.sequence).add_word(self.template).add_word(self.lost).value()
    }
}

crate::layout::layouts! {
    RegionStream { thread, process, slots, more_regions, started_ns, sequence, lost, end, region, next }
    StreamChunkHeader { state, thread, process, parent, started_ns, sequence, template, lost, checksum, reserved }
}

/// The chunk may be overwritten.
pub const CHUNK_FREE: u32 = 0;
/// The chunk is being filled.
pub const CHUNK_CURRENT: u32 = 1;
/// The chunk is full, or its thread has ended.
pub const CHUNK_FULL: u32 = 2;

/// An event of a stream. Counters are indices into the image's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A path (given by its counter) ended or reached a call that may not return, and its frame continues.
    Path(u32),
    /// A path (given by its counter) ended together with its frame.
    Exit(u32),
    /// A function (given by its first counter) was entered.
    Enter(u32),
    /// Control returned to the frame at this depth (from 1): by an exception, by `longjmp`, or by the first return of a function that
    /// returns twice, such as `setjmp`. Frames above it are gone. 0 represents all frames that are too deep for the shadow stack.
    Resume(u32),
    /// At a stream's start, outermost frame first: a frame that existed when the process was forked, given by a counter of its function.
    Inherited(u32),
}

/// Tag of [`Event::Path`], in the lowest bits of a word.
pub const TAG_PATH: u32 = 1;
/// Tag of [`Event::Enter`].
pub const TAG_ENTER: u32 = 2;
/// Tag of [`Event::Resume`].
pub const TAG_RESUME: u32 = 3;
/// Tag of [`Event::Inherited`].
pub const TAG_INHERITED: u32 = 4;
/// Tag of [`Event::Exit`].
pub const TAG_EXIT: u32 = 5;
/// Mask of the tag bits.
pub const TAG_MASK: u32 = 7;

impl Event {
    /// Decodes a word of a chunk. `template` is the address of the counter template in the process. `None` if the word is not an event.
    #[inline]
    pub const fn from_word(word: u32, template: u64) -> Option<Event> {
        let tag = word & TAG_MASK;
        let value = match tag {
            TAG_RESUME => slot_depth((word >> 3) as u64 * 4),
            _ => (word & !TAG_MASK).wrapping_sub(template as u32) / 8,
        };
        Event::from_parts(tag, value)
    }

    /// Encodes the event as a word that does not depend on where the image is loaded.
    #[inline]
    pub const fn to_word(self) -> u32 {
        match self {
            Event::Path(counter) => counter << 3 | TAG_PATH,
            Event::Exit(counter) => counter << 3 | TAG_EXIT,
            Event::Enter(counter) => counter << 3 | TAG_ENTER,
            Event::Resume(depth) => depth << 3 | TAG_RESUME,
            Event::Inherited(counter) => counter << 3 | TAG_INHERITED,
        }
    }

    /// Decodes the result of [`Event::to_word`]. `None` if the word is not an event.
    #[inline]
    pub const fn from_stored(word: u32) -> Option<Event> {
        Event::from_parts(word & TAG_MASK, word >> 3)
    }

    const fn from_parts(tag: u32, value: u32) -> Option<Event> {
        match tag {
            TAG_PATH => Some(Event::Path(value)),
            TAG_EXIT => Some(Event::Exit(value)),
            TAG_ENTER => Some(Event::Enter(value)),
            TAG_RESUME => Some(Event::Resume(value)),
            TAG_INHERITED => Some(Event::Inherited(value)),
            _ => None,
        }
    }
}

/// Returns a frame's depth, given the offset of its slot in the region: 1 for the first slot, 0 for the limit slot, whose offset modulo
/// [`SHADOW_BYTES`] is 0.
const fn slot_depth(offset: u64) -> u32 {
    if offset < STREAM_HEADER_BYTES { 0 } else { ((offset - STREAM_HEADER_BYTES) / 4 + 1) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_has_room_for_its_parts() {
        assert_eq!(
            (size_of::<RegionStream>(), size_of::<StreamChunkHeader>()),
            (STREAM_HEADER_BYTES as usize, STREAM_HEADER_BYTES as usize)
        );
        assert!(CHUNK_RING_OFFSET_BYTES.is_multiple_of(CHUNK_BYTES) && crate::region_stride(STREAM_REGION_WORDS) <= 1 << 20);
    }

    #[test]
    fn words_encode_events() {
        let template = 0x5555_ffff_ff00_u64;
        let word = |counter: u64, tag: u32| (template + 8 * counter) as u32 | tag;
        for counter in [0, 1, 31, 32, 1 << 20] {
            let events = [Event::Path(counter), Event::Exit(counter), Event::Enter(counter), Event::Inherited(counter)];
            for (event, tag) in events.into_iter().zip([TAG_PATH, TAG_EXIT, TAG_ENTER, TAG_INHERITED]) {
                assert_eq!(Event::from_word(word(counter.into(), tag), template), Some(event));
                assert_eq!(Event::from_stored(event.to_word()), Some(event));
            }
        }
        let resume = |offset: u32| Event::from_word(offset << 1 | TAG_RESUME, template);
        assert_eq!([0, 64, 68].map(resume), [Some(Event::Resume(0)), Some(Event::Resume(1)), Some(Event::Resume(2))]);
        assert_eq!((Event::from_word(0, template), Event::from_word(7, template)), (None, None));
    }
}
