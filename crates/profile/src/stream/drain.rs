//! Drains a stream file while the traced program runs: moves full chunks of events to the stream log.
//!
//! A chunk is returned to the program only after its events are in a journal. If the recorder is killed, the next one finds each chunk in
//! the stream file, in the journal, or in both, and reads it once.
//!
//! Each thread writes to a region of the stream file. The regions are polled one after the other while the program writes, so a later chunk
//! of a thread may be seen before an earlier one. Chunks are therefore drained in the order of their numbers, and chunks after a missing
//! one wait for the next poll.

use super::builder::{StreamLogBuilder, WindowBounds, find_journals};
use super::live::{LiveStream, StreamChunk, ThreadKey};
use super::log::{self, LogFrameContent, LogFrameHeader, PackedFrame, StreamLog};
use super::symbol::CallStackDepth;
use crate::error::ProfileError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trodden_sequence::CompressionMethod;
use trodden_wire::LostThreads;
use trodden_wire::stream::{CHUNK_EVENT_COUNT, STREAM_CHUNKS_PER_REGION};

/// Number of chunks of a thread (16 KiB each) that are collected before they are written to the journal together.
const MAX_CHUNKS_PER_FRAME: usize = 16;
/// Interval, in polls, at which all chunks are examined. The other polls examine only the chunks that are expected to be full next.
const FULL_SCAN_INTERVAL: u32 = 200;
/// Number of consecutive polls without a full chunk after which all chunks are examined. This is repeated whenever the number of such polls
/// reaches a power of two.
const MIN_IDLE_POLLS_BEFORE_SCAN: u32 = 4;
/// Number of consecutive polls without a full chunk after which all open windows are closed.
const IDLE_POLLS_BEFORE_CLOSE: u32 = 500;

/// A drain of a stream file into a log.
#[derive(Debug)]
pub struct StreamDrain {
    live: LiveStream,
    builder: StreamLogBuilder,
    pending: BTreeMap<ThreadKey, PendingChunks>,
    /// For each region, the slot whose chunk is expected to be full next.
    expected: Vec<u64>,
    /// For each thread, the number of the next chunk to drain.
    next: BTreeMap<ThreadKey, u64>,
    polls: u32,
    idle: u32,
    drained: StreamDrainTotals,
}

/// Amounts of data that a drain wrote and of data that was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamDrainTotals {
    /// Number of events.
    pub events: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of words in chunks that do not encode an event.
    pub invalid_words: u64,
    /// Number of bytes that could not be read in an earlier log and its journals ([`StreamLog::corrupt_bytes`]).
    pub corrupt_bytes: u64,
    /// Size of the log in bytes.
    pub bytes: u64,
    /// Threads that recorded nothing, because there was no space for a region.
    pub lost: LostThreads,
}

/// Consecutive chunks of a thread that have been read, but neither been written to the journal nor returned to the program yet.
#[derive(Debug)]
struct PendingChunks {
    header: LogFrameHeader,
    words: Vec<u32>,
    chunks: Vec<StreamChunk>,
}

impl StreamDrain {
    /// Starts to drain the stream file `stream` into the new log `log`.
    pub fn begin(stream: &Path, log: &Path, method: CompressionMethod) -> Result<StreamDrain, ProfileError> {
        let live = LiveStream::open(stream, true)?;
        let builder = StreamLogBuilder::create(log, live.header(), method, WindowBounds::default())?;
        Ok(StreamDrain {
            live,
            builder,
            pending: BTreeMap::new(),
            expected: Vec::new(),
            next: BTreeMap::new(),
            polls: 0,
            idle: 0,
            drained: StreamDrainTotals::default(),
        })
    }

    /// Changes the limits above which windows are closed.
    pub fn set_bounds(&mut self, bounds: WindowBounds) {
        self.builder.set_bounds(bounds);
    }

    /// Returns true if a window is open.
    pub fn has_open_windows(&self) -> bool {
        self.builder.entry_count_in_memory() > 0
    }

    /// Drains the chunks that are full. Returns their number.
    pub fn drain_full_chunks(&mut self) -> Result<usize, ProfileError> {
        self.polls += 1;
        // If a few polls found no full chunk, chunks may be full in other slots than the expected ones, and the program may be waiting for
        // them.
        let is_thorough =
            self.polls.is_multiple_of(FULL_SCAN_INTERVAL) || self.idle >= MIN_IDLE_POLLS_BEFORE_SCAN && self.idle.is_power_of_two();
        let full = if is_thorough {
            self.scan_all_chunks()?
        } else {
            let expected = self.find_expected_chunks()?;
            let some_full = !expected.is_empty();
            let next = self.select_next(expected);
            self.advance_expected(&next);
            // There are full chunks, but none is the next one of its thread. The next ones must be in other slots.
            if some_full && next.is_empty() { self.scan_all_chunks()? } else { next }
        };
        for chunk in &full {
            self.read_chunk(chunk)?;
        }
        self.idle = if full.is_empty() { self.idle.saturating_add(1) } else { 0 };
        if self.idle == IDLE_POLLS_BEFORE_CLOSE {
            self.flush_all_threads()?;
            self.builder.close_all_windows()?;
        }
        Ok(full.len())
    }

    /// Drains all remaining chunks and closes the log. The program must have ended.
    pub fn finish_drain(mut self) -> Result<StreamDrainTotals, ProfileError> {
        self.flush_all_threads()?;
        for chunk in self.live.chunks()? {
            self.read_chunk(&chunk)?;
        }
        self.flush_all_threads()?;
        self.drained.invalid_words += count_lost_words(&self.live)?;
        let bytes = self.builder.close_all_windows()?;
        Ok(StreamDrainTotals { bytes, events: self.builder.event_count(), lost: self.live.lost_threads()?, ..self.drained })
    }

    /// Creates a log for a program that has ended, from its stream file and from the log (`before`) and journals of a killed recorder. The
    /// existing files are left unchanged.
    pub fn finish_interrupted_drain(
        stream: &Path,
        log: &Path,
        before: Option<&Path>,
        method: CompressionMethod,
    ) -> Result<StreamDrainTotals, ProfileError> {
        let live = LiveStream::open(stream, false)?;
        // The ends of the threads are read before their chunks. Otherwise, chunks that a running program fills in between would be reported
        // as missing.
        let ends = live.count_chunks_by_thread()?;
        let mut builder = StreamLogBuilder::create(log, live.header(), method, WindowBounds::default())?;
        let mut drained = StreamDrainTotals::default();
        if let Some(before) = before {
            let windows = StreamLog::open(before)?;
            drained.corrupt_bytes += windows.corrupt_bytes();
            for thread in windows.threads() {
                windows
                    .visit_frames(thread, |frame| builder.append_window(&frame.header, &frame.packed, frame.section.unpacked_length()))?;
            }
        }
        let journals = before.map_or(Ok(Vec::new()), find_journals)?;
        let pieces = collect_remaining_pieces(&live, &journals, &mut drained.corrupt_bytes)?;
        for thread_pieces in pieces.chunk_by(|a, b| a.header.key == b.header.key) {
            let mut next = builder.next_chunk(thread_pieces[0].header.key);
            for piece in thread_pieces {
                if piece.header.sequence < next {
                    continue;
                }
                let mut words = Vec::new();
                match &piece.source {
                    PieceSource::Chunk(chunk) => drained.invalid_words += live.read_events(chunk, &mut words)?,
                    PieceSource::Journal(frame) => words = log::unpack_events(frame, stream)?,
                }
                builder.add_events(&piece.header, &words)?;
                drained.chunks += piece.header.chunks;
                next = piece.header.sequence.saturating_add(piece.header.chunks);
            }
        }
        drained.invalid_words += count_lost_words(&live)?;
        // Chunks that were already returned to the program are missing if the log or a journal was truncated.
        ends.into_iter().try_for_each(|(key, end)| builder.end_thread(key, end))?;
        let bytes = builder.close_all_windows()?;
        Ok(StreamDrainTotals { bytes, events: builder.event_count(), lost: live.lost_threads()?, ..drained })
    }

    /// Returns the stream file.
    pub fn live(&self) -> &LiveStream {
        &self.live
    }

    /// Examines all chunks. Returns the full ones that are next in their threads.
    fn scan_all_chunks(&mut self) -> Result<Vec<StreamChunk>, ProfileError> {
        let full = self.live.chunks()?.into_iter().filter(|c| c.is_full).collect();
        let full = self.select_next(full);
        self.expected.resize(self.live.region_count()? as usize, 0);
        full.iter().for_each(|c| self.expected[c.place.0 as usize] = (c.place.1 + 1) % STREAM_CHUNKS_PER_REGION);
        Ok(full)
    }

    /// Selects the chunks that are next in their threads and not pending already.
    fn select_next(&mut self, chunks: Vec<StreamChunk>) -> Vec<StreamChunk> {
        let is_pending = |c: &StreamChunk| self.pending.get(&c.key).is_some_and(|p| p.chunks.iter().any(|k| k.place == c.place));
        select_consecutive_chunks(&mut self.next, chunks.into_iter().filter(|c| !is_pending(c)))
    }

    /// Returns the full chunks in the expected slots, and further full chunks in the slots after these, sorted by thread and number.
    fn find_expected_chunks(&mut self) -> Result<Vec<StreamChunk>, ProfileError> {
        self.expected.resize(self.live.region_count()? as usize, 0);
        let mut full = Vec::new();
        for (region, expected) in self.expected.iter().enumerate() {
            for ahead in 0..STREAM_CHUNKS_PER_REGION {
                let Some(chunk) = self.live.chunk(region as u64, (expected + ahead) % STREAM_CHUNKS_PER_REGION)?.filter(|c| c.is_full)
                else {
                    break;
                };
                full.push(chunk);
            }
        }
        full.sort_by_key(|c| (c.key, c.sequence));
        Ok(full)
    }

    fn advance_expected(&mut self, drained: &[StreamChunk]) {
        let drained: BTreeSet<(u64, u64)> = drained.iter().map(|c| c.place).collect();
        for (region, expected) in self.expected.iter_mut().enumerate() {
            for _ in 0..STREAM_CHUNKS_PER_REGION {
                if !drained.contains(&(region as u64, *expected)) {
                    break;
                }
                *expected = (*expected + 1) % STREAM_CHUNKS_PER_REGION;
            }
        }
    }

    /// Reads a chunk and adds it to the thread's pending chunks. If the chunk does not continue them, or if there are
    /// [`MAX_CHUNKS_PER_FRAME`], they are flushed first.
    fn read_chunk(&mut self, chunk: &StreamChunk) -> Result<(), ProfileError> {
        let follows = |p: &PendingChunks| p.header.sequence + p.header.chunks == chunk.sequence && p.header.lost == chunk.lost;
        if self.pending.get(&chunk.key).is_some_and(|p| !follows(p) || p.chunks.len() == MAX_CHUNKS_PER_FRAME) {
            self.flush(chunk.key)?;
        }
        let StreamChunk { key, parent, sequence, lost, .. } = *chunk;
        let header = LogFrameHeader {
            content: LogFrameContent::Events,
            key,
            parent,
            sequence,
            chunks: 0,
            lost,
            events: 0,
            depth: CallStackDepth::default(),
        };
        let pending = self.pending.entry(key).or_insert_with(|| PendingChunks { header, words: Vec::new(), chunks: Vec::new() });
        self.drained.invalid_words += self.live.read_events(chunk, &mut pending.words)?;
        pending.header.chunks += 1;
        pending.chunks.push(chunk.clone());
        Ok(())
    }

    fn flush_all_threads(&mut self) -> Result<(), ProfileError> {
        let keys: Vec<ThreadKey> = self.pending.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.flush(key))
    }

    /// Writes a thread's pending chunks to its journal, returns them to the program, and adds their events to the thread's window.
    fn flush(&mut self, key: ThreadKey) -> Result<(), ProfileError> {
        let Some(PendingChunks { header, words, chunks }) = self.pending.remove(&key) else { return Ok(()) };
        let header = LogFrameHeader { events: words.len() as u64, ..header };
        self.builder.append_to_journal(&header, &words)?;
        self.drained.chunks += chunks.len() as u64;
        chunks.iter().try_for_each(|chunk| self.live.release_chunk(chunk))?;
        self.builder.add_events(&header, &words)
    }
}

/// Selects the chunks that continue their threads without a gap, and advances `next`, the number of each thread's next chunk. The chunks
/// must be sorted by thread and number.
fn select_consecutive_chunks(next: &mut BTreeMap<ThreadKey, u64>, chunks: impl Iterator<Item = StreamChunk>) -> Vec<StreamChunk> {
    chunks
        .filter(|chunk| {
            let next = next.entry(chunk.key).or_default();
            let follows = chunk.sequence == *next;
            *next += u64::from(follows);
            follows
        })
        .collect()
}

/// Counts the words in chunks with corrupt headers, whose thread is unknown. Logs a warning for each chunk.
fn count_lost_words(live: &LiveStream) -> Result<u64, ProfileError> {
    let corrupt = live.corrupt_chunks()?;
    for offset in &corrupt {
        ::log::warn!(
            "{}: the events in the part of the file at byte {offset} are lost, because the header of this part is corrupt",
            live.path().display()
        );
    }
    Ok(corrupt.len() as u64 * CHUNK_EVENT_COUNT)
}

/// A part of a thread's stream that is not in a closed window.
struct RemainingPiece {
    header: LogFrameHeader,
    source: PieceSource,
}

enum PieceSource {
    Chunk(StreamChunk),
    Journal(PackedFrame),
}

/// Collects the parts of streams that are in journals or in the stream file, sorted by thread and number of the first chunk. Of several
/// parts that begin with the same chunk, the longest is first.
fn collect_remaining_pieces(live: &LiveStream, journals: &[PathBuf], corrupt_bytes: &mut u64) -> Result<Vec<RemainingPiece>, ProfileError> {
    let mut pieces = Vec::new();
    for path in journals {
        if log::has_incomplete_header(path)? {
            // The recorder was killed while it created the journal. At that time it had returned none of the journal's chunks to the
            // program.
            continue;
        }
        let journal = StreamLog::open(path)?;
        *corrupt_bytes += journal.corrupt_bytes();
        for thread in journal.threads() {
            journal.visit_frames(thread, |frame| {
                pieces.push(RemainingPiece { header: frame.header, source: PieceSource::Journal(frame) });
                Ok(())
            })?;
        }
    }
    for chunk in live.chunks()? {
        let StreamChunk { key, parent, sequence, lost, .. } = chunk;
        let header = LogFrameHeader {
            content: LogFrameContent::Events,
            key,
            parent,
            sequence,
            chunks: 1,
            lost,
            events: 0,
            depth: CallStackDepth::default(),
        };
        pieces.push(RemainingPiece { header, source: PieceSource::Chunk(chunk) });
    }
    pieces.sort_by_key(|r| (r.header.key, r.header.sequence, std::cmp::Reverse(r.header.chunks)));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(thread: u32, sequence: u64) -> StreamChunk {
        let key = ThreadKey { process: 1, started_ns: 1, thread };
        StreamChunk { key, parent: None, sequence, lost: 0, template: 0, is_full: true, place: (sequence % 2, sequence / 2) }
    }

    /// A poll may find chunk 2 full in one region although it did not find chunk 1, because it examined the region of chunk 1 before this
    /// chunk was full.
    #[test]
    fn chunk_after_a_gap_waits_for_the_next_poll() {
        let mut next = BTreeMap::new();
        let mut numbers = |seen: &[(u32, u64)]| -> Vec<(u32, u64)> {
            let taken = select_consecutive_chunks(&mut next, seen.iter().map(|(thread, sequence)| chunk(*thread, *sequence)));
            taken.iter().map(|c| (c.key.thread, c.sequence)).collect()
        };
        assert_eq!(numbers(&[(1, 0), (1, 2), (2, 0), (2, 1)]), [(1, 0), (2, 0), (2, 1)]);
        assert_eq!(numbers(&[(1, 2), (1, 3)]), []);
        assert_eq!(numbers(&[(1, 1), (1, 2), (1, 3), (1, 5)]), [(1, 1), (1, 2), (1, 3)]);
    }
}
