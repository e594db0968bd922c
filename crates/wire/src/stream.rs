//! Layouts of streams: what a thread of a stream build writes while it runs, and where.
//!
//! A stream build counts nothing. Where another build adds one to a counter, it writes an *event*: a word of four bytes
//! that is unique in the image. So counts follow from events ([`Event`]), and so does the order of paths and calls.
//!
//! ```text
//! stream file  RawHeader (kind STREAM_FILE) ... regions, one or more of each thread
//! region       0              64           SHADOW_BYTES     RING_OFFSET                    REGION_WORDS * 8
//!              | RegionStream | shadow stack | limit slot | | chunk 0 | ... | chunk SLOTS-1 | slack | holder, lost
//! chunk        0             64                CHUNK_BYTES
//!              | ChunkHeader | events, then zeros |
//! ```
//!
//! - The *cursor* of a thread ([`STREAM_SYMBOL`]) is the address of its next event. An event is written by one addition to
//!   the cursor (one instruction, so that a signal handler in between loses nothing) and a store. Where the cursor was a
//!   multiple of [`CHUNK_BYTES`], or 0, the runtime finds the next chunk first.
//! - The *shadow stack* has a slot for each live frame of the image's functions: the event of its last call, or of its
//!   entry. The first slot that is 0 ends it. A frame that is left clears its slot.
//! - What a signal handler writes between an addition to the cursor at the end of a chunk and the runtime lies behind the
//!   chunk; so the chunk behind the one that is filled is always free.
//!
//! Invariants: no event is 0; the events of a chunk end with the last word that is not 0. What readers of a file that is being written
//! may believe stands in [`crate::live`].

use crate::Checksum;

/// Version of stream files, of kind [`crate::head::FileKind::STREAM_FILE`].
pub const STREAM_VERSION: u32 = 3;
/// Bytes of a chunk; cursors stop at multiples of it.
pub const CHUNK_BYTES: u64 = 1 << 14;
/// Bytes of the shadow stack, with the header before it. A mapped region begins at a multiple of it.
pub const SHADOW_BYTES: u64 = 1 << 18;
/// Where the first chunk of a region is.
pub const RING_OFFSET: u64 = SHADOW_BYTES + CHUNK_BYTES;
/// Chunks of a region.
pub const SLOTS: u64 = 45;
/// Words (`u64`) of a region before its tail, as [`crate::region_stride`] takes them.
pub const REGION_WORDS: u64 = (RING_OFFSET + (SLOTS + 1) * CHUNK_BYTES) / 8;
/// Bytes of [`RegionStream`] and of [`ChunkHeader`].
pub const HEADER_BYTES: u64 = 64;
/// Events of a chunk.
pub const CHUNK_EVENTS: u64 = (CHUNK_BYTES - HEADER_BYTES) / 4;
/// Most events that the flight recorder of a thread is sure to have, whatever is asked for.
pub const MOST_LAST: u64 = (SLOTS - 2) * CHUNK_EVENTS;

/// Thread-local [`ThreadStream`], hidden in each stream image.
pub const STREAM_SYMBOL: &str = "__trodden_stream";
/// Function `() -> *mut ThreadStream` of such images.
pub const STREAM_PLACE_SYMBOL: &str = "__trodden_stream_place";
/// Code that is jumped to with a cursor at a chunk's end in `rax` and the place to go on in `r11`. Gives in `rax` the
/// address of the word to write. Preserves every register but `rax`, `r11` and the flags.
pub const NEXT_CHUNK_SYMBOL: &str = "__trodden_stream_next";
/// Code that is jumped to likewise, with a shadow stack pointer in `rax` that has no slot: the thread's first frame, or
/// one too many. Gives the frame's slot in `rax`; the pointer itself is behind it then.
pub const NEXT_SLOT_SYMBOL: &str = "__trodden_stream_enter";
/// Environment variable: `whole` or `whole,REGIONS,MILLISECONDS`, or the number of events that the flight recorder is to keep of
/// each thread.
pub const STREAM_VARIABLE: &str = "TRODDEN_STREAM";
/// What it is where that is not set.
pub const DEFAULT_LAST: u64 = 1000;
/// Regions of a thread at most, each a mebibyte of the file: what the recorder may be behind before the thread waits.
pub const DEFAULT_REGIONS: u64 = 64;
/// The most that can be asked for.
pub const MOST_REGIONS: u64 = 1 << 20;
/// So long, in milliseconds, a thread waits for the recorder to give a chunk back before it gives events up, and counts them.
pub const DEFAULT_PATIENCE_MS: u64 = 2000;
/// The most that can be asked for.
pub const MOST_PATIENCE_MS: u64 = 3_600_000;

/// What a thread of a stream image has in thread-local memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStream {
    /// Address of the next event.
    pub cursor: u64,
    /// Address of the slot of the next frame.
    pub shadow: u64,
}

/// Beginning of a region.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionStream {
    /// Thread, or 0 if the region only has chunks.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Chunks that are used, one after the other, of a flight recorder; 0 of a whole program.
    pub slots: u32,
    /// Of a thread's first region: regions that it has besides.
    pub more_regions: u32,
    /// When it began to write here, nanoseconds since 1970.
    pub started_ns: u64,
    /// Number of the next chunk of its stream.
    pub sequence: u64,
    /// Events of the stream that are lost so far.
    pub lost: u64,
    /// Address behind the chunk that is being filled, in the process.
    pub end: u64,
    /// Address of the region with that chunk, in the process.
    pub region: u64,
    /// Address of the thread's next region, in the process; the last one's is the first.
    pub next: u64,
}

/// Beginning of a chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// [`CHUNK_FREE`], [`CHUNK_CURRENT`] or [`CHUNK_FULL`].
    pub state: u32,
    /// Thread that wrote it.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Process that it was forked from while this stream had frames; else 0.
    pub parent: u32,
    /// When the stream began: with process and thread, its name.
    pub started_ns: u64,
    /// Place among the chunks of the stream.
    pub sequence: u64,
    /// Address of the template of counters in the process.
    pub template: u64,
    /// Events of the stream that were lost before it.
    pub lost: u64,
    /// [`ChunkHeader::fields_checksum`].
    pub checksum: u64,
    /// 0.
    pub reserved: u64,
}

impl ChunkHeader {
    /// Checksum of all fields that stay as they are while the chunk has this header: all but the state.
    #[inline]
    pub const fn fields_checksum(&self) -> u64 {
        let (thread, process) = (self.thread as u64, self.process as u64);
        let sum = Checksum::new().add_word(thread << 32 | process).add_word(self.parent as u64).add_word(self.started_ns);
        sum.add_word(self.sequence).add_word(self.template).add_word(self.lost).value()
    }
}

crate::layout::layouts! {
    RegionStream { thread, process, slots, more_regions, started_ns, sequence, lost, end, region, next }
    ChunkHeader { state, thread, process, parent, started_ns, sequence, template, lost, checksum, reserved }
}

/// Nothing in it is needed.
pub const CHUNK_FREE: u32 = 0;
/// It is being filled.
pub const CHUNK_CURRENT: u32 = 1;
/// It is full, or its thread has ended.
pub const CHUNK_FULL: u32 = 2;

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A path ended, or came to a call that might not return; its frame goes on: its counter in the image.
    Path(u32),
    /// A path ended, and with it the frame.
    Exit(u32),
    /// A function began: its first counter.
    Enter(u32),
    /// Control came back to the frame of this depth, from 1, by an exception or `longjmp`, or for the first time: those
    /// above it are gone. 0: to one of the frames that are too deep for the shadow stack.
    Resume(u32),
    /// The process that forked had a frame: a counter of its function. At a stream's beginning, outermost first.
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
/// The bits of tags.
pub const TAG_MASK: u32 = 7;

impl Event {
    /// Reads a word of a chunk of an image with that template. `None`: the word is no event.
    #[inline]
    pub const fn from_word(word: u32, template: u64) -> Option<Event> {
        let tag = word & TAG_MASK;
        let value = match tag {
            TAG_RESUME => depth_of((word >> 3) as u64 * 4),
            _ => (word & !TAG_MASK).wrapping_sub(template as u32) / 8,
        };
        Event::from_parts(tag, value)
    }

    /// The same event as a word that does not depend on where the image was loaded.
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

    /// Reads what [`Event::to_word`] gives. `None`: the word is no event.
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

/// Depth of a frame by its slot's offset in the region: the first one's is 1; 0 behind the last.
const fn depth_of(offset: u64) -> u32 {
    if offset < HEADER_BYTES { 0 } else { ((offset - HEADER_BYTES) / 4 + 1) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_room_for_what_is_in_it() {
        assert_eq!((size_of::<RegionStream>(), size_of::<ChunkHeader>()), (HEADER_BYTES as usize, HEADER_BYTES as usize));
        assert!(RING_OFFSET.is_multiple_of(CHUNK_BYTES) && crate::region_stride(REGION_WORDS) <= 1 << 20);
    }

    #[test]
    fn words_say_which_event_they_are() {
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
