//! Moves full chunks from a stream file to its log while the program runs.
//!
//! A chunk is returned to the program only after its events are in a journal. If the recorder is killed, the next one finds each chunk in
//! the stream file, in the journal, or in both, and reads it once.
//!
//! Regions are polled one after the other while the program writes, so a later chunk of a thread may be seen before an earlier one. Chunks
//! are therefore drained in the order of their numbers; chunks after a gap wait for the next poll.

use super::builder::{LogBuilder, WindowBounds, find_journals};
use super::live::{LiveStream, StreamChunk, ThreadKey};
use super::log::{self, LogContent, LogFrameHeader, PackedFrame, StreamLog};
use super::symbol::Depth;
use crate::error::ProfileError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trodden_sequence::CompressionMethod;
use trodden_wire::LostThreads;
use trodden_wire::stream::{CHUNK_EVENTS, SLOTS};

/// Number of a thread's chunks (256 KiB) that are collected before they are written as a frame.
const FRAME_CHUNKS: usize = 16;
/// Number of polls after which all chunks are examined, instead of only those that are expected to be full next.
const FULL_SCAN_INTERVAL: u32 = 200;
/// Number of consecutive polls without a full chunk after which all chunks are examined. They are examined again whenever the number of
/// such polls reaches a power of two.
const IDLE_POLLS_BEFORE_SCAN: u32 = 4;
/// Number of consecutive polls without a full chunk after which the open windows are closed.
const IDLE_POLLS_BEFORE_CLOSE: u32 = 500;

/// Drains a stream file into a log.
#[derive(Debug)]
pub struct Drain {
    live: LiveStream,
    builder: LogBuilder,
    pending: BTreeMap<ThreadKey, PendingChunks>,
    /// By region, the slot that is expected to be full next.
    expected: Vec<u64>,
    /// By thread, the number of the next chunk.
    next: BTreeMap<ThreadKey, u64>,
    polls: u32,
    idle: u32,
    drained: DrainTotals,
}

/// Totals of a drain: the data that it wrote, and the data that was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainTotals {
    /// Number of events.
    pub events: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of words in chunks that are not events.
    pub invalid_words: u64,
    /// Number of unreadable bytes in an earlier log and its journals ([`StreamLog::corrupt_bytes`]).
    pub corrupt_bytes: u64,
    /// Size of the log in bytes.
    pub bytes: u64,
    /// Threads that recorded nothing, because there was no space.
    pub lost: LostThreads,
}

/// Consecutive chunks of a thread that have been read, but are not written or returned to the program yet.
#[derive(Debug)]
struct PendingChunks {
    header: LogFrameHeader,
    words: Vec<u32>,
    chunks: Vec<StreamChunk>,
}

impl Drain {
    /// Starts to drain the stream file `stream` into a new log.
    pub fn begin(stream: &Path, log: &Path, method: CompressionMethod) -> Result<Drain, ProfileError> {
        let live = LiveStream::open(stream, true)?;
        let builder = LogBuilder::create(log, live.header(), method, WindowBounds::default())?;
        Ok(Drain {
            live,
            builder,
            pending: BTreeMap::new(),
            expected: Vec::new(),
            next: BTreeMap::new(),
            polls: 0,
            idle: 0,
            drained: DrainTotals::default(),
        })
    }

    /// Changes the bounds of the windows.
    pub fn set_bounds(&mut self, bounds: WindowBounds) {
        self.builder.set_bounds(bounds);
    }

    /// Returns true if windows are open.
    pub fn has_open_windows(&self) -> bool {
        self.builder.entries_in_memory() > 0
    }

    /// Drains the chunks that are full and returns their number.
    pub fn poll(&mut self) -> Result<usize, ProfileError> {
        self.polls += 1;
        // After a few polls without a full chunk, chunks in unexpected slots may be full, and the program may be waiting for them.
        let is_thorough =
            self.polls.is_multiple_of(FULL_SCAN_INTERVAL) || self.idle >= IDLE_POLLS_BEFORE_SCAN && self.idle.is_power_of_two();
        let full = if is_thorough {
            self.scan_all_chunks()?
        } else {
            let expected = self.expected_chunks()?;
            let some_full = !expected.is_empty();
            let next = self.select_next(expected);
            self.advance_expected(&next);
            // Full chunks were found, but none is its thread's next chunk; that chunk must be in a different slot.
            if some_full && next.is_empty() { self.scan_all_chunks()? } else { next }
        };
        for chunk in &full {
            self.read_chunk(chunk)?;
        }
        self.idle = if full.is_empty() { self.idle.saturating_add(1) } else { 0 };
        if self.idle == IDLE_POLLS_BEFORE_CLOSE {
            self.flush_all()?;
            self.builder.close_all()?;
        }
        Ok(full.len())
    }

    /// Drains all remaining chunks after the program has ended, and closes the log.
    pub fn finish(mut self) -> Result<DrainTotals, ProfileError> {
        self.flush_all()?;
        for chunk in self.live.chunks()? {
            self.read_chunk(&chunk)?;
        }
        self.flush_all()?;
        self.drained.invalid_words += count_lost_words(&self.live)?;
        let bytes = self.builder.close_all()?;
        Ok(DrainTotals { bytes, events: self.builder.symbols(), lost: self.live.lost_threads()?, ..self.drained })
    }

    /// Creates a log for a program that has ended, from its stream file and from the log and journals that a killed recorder left
    /// (`before`). These files are not changed.
    pub fn resume(stream: &Path, log: &Path, before: Option<&Path>, method: CompressionMethod) -> Result<DrainTotals, ProfileError> {
        let live = LiveStream::open(stream, false)?;
        // The ends are read before the chunks, so that chunks that a running program fills in between are not reported as missing.
        let ends = live.ends()?;
        let mut builder = LogBuilder::create(log, live.header(), method, WindowBounds::default())?;
        let mut drained = DrainTotals::default();
        if let Some(before) = before {
            let windows = StreamLog::open(before)?;
            drained.corrupt_bytes += windows.corrupt_bytes();
            for thread in windows.threads() {
                windows
                    .visit_frames(thread, |frame| builder.append_window(&frame.header, &frame.packed, frame.section.unpacked_length()))?;
            }
        }
        let journals = before.map_or(Ok(Vec::new()), find_journals)?;
        let pieces = remaining_pieces(&live, &journals, &mut drained.corrupt_bytes)?;
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
        // If a journal or log was truncated, chunks that were already returned to the program are missing.
        ends.into_iter().try_for_each(|(key, end)| builder.end_thread(key, end))?;
        let bytes = builder.close_all()?;
        Ok(DrainTotals { bytes, events: builder.symbols(), lost: live.lost_threads()?, ..drained })
    }

    /// Returns the stream file.
    pub fn live(&self) -> &LiveStream {
        &self.live
    }

    /// Examines all chunks, and returns the full ones that come next in their threads.
    fn scan_all_chunks(&mut self) -> Result<Vec<StreamChunk>, ProfileError> {
        let full = self.live.chunks()?.into_iter().filter(|c| c.is_full).collect();
        let full = self.select_next(full);
        self.expected.resize(self.live.regions()? as usize, 0);
        full.iter().for_each(|c| self.expected[c.place.0 as usize] = (c.place.1 + 1) % SLOTS);
        Ok(full)
    }

    /// Selects the chunks that come next in their threads, except pending ones.
    fn select_next(&mut self, chunks: Vec<StreamChunk>) -> Vec<StreamChunk> {
        let is_pending = |c: &StreamChunk| self.pending.get(&c.key).is_some_and(|p| p.chunks.iter().any(|k| k.place == c.place));
        select_in_order(&mut self.next, chunks.into_iter().filter(|c| !is_pending(c)))
    }

    /// Returns the full chunks in the expected slots and directly after them, by thread and number.
    fn expected_chunks(&mut self) -> Result<Vec<StreamChunk>, ProfileError> {
        self.expected.resize(self.live.regions()? as usize, 0);
        let mut full = Vec::new();
        for (region, expected) in self.expected.iter().enumerate() {
            for ahead in 0..SLOTS {
                let Some(chunk) = self.live.chunk(region as u64, (expected + ahead) % SLOTS)?.filter(|c| c.is_full) else { break };
                full.push(chunk);
            }
        }
        full.sort_by_key(|c| (c.key, c.sequence));
        Ok(full)
    }

    fn advance_expected(&mut self, drained: &[StreamChunk]) {
        let drained: BTreeSet<(u64, u64)> = drained.iter().map(|c| c.place).collect();
        for (region, expected) in self.expected.iter_mut().enumerate() {
            for _ in 0..SLOTS {
                if !drained.contains(&(region as u64, *expected)) {
                    break;
                }
                *expected = (*expected + 1) % SLOTS;
            }
        }
    }

    /// Reads a chunk into the thread's pending chunks. Writes the pending chunks if there are enough of them, or if this chunk does not
    /// follow them.
    fn read_chunk(&mut self, chunk: &StreamChunk) -> Result<(), ProfileError> {
        let follows = |p: &PendingChunks| p.header.sequence + p.header.chunks == chunk.sequence && p.header.lost == chunk.lost;
        if self.pending.get(&chunk.key).is_some_and(|p| !follows(p) || p.chunks.len() == FRAME_CHUNKS) {
            self.flush(chunk.key)?;
        }
        let StreamChunk { key, parent, sequence, lost, .. } = *chunk;
        let header =
            LogFrameHeader { content: LogContent::Events, key, parent, sequence, chunks: 0, lost, events: 0, depth: Depth::default() };
        let pending = self.pending.entry(key).or_insert_with(|| PendingChunks { header, words: Vec::new(), chunks: Vec::new() });
        self.drained.invalid_words += self.live.read_events(chunk, &mut pending.words)?;
        pending.header.chunks += 1;
        pending.chunks.push(chunk.clone());
        Ok(())
    }

    fn flush_all(&mut self) -> Result<(), ProfileError> {
        let keys: Vec<ThreadKey> = self.pending.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.flush(key))
    }

    /// Writes a thread's pending chunks to its journal, returns them to the program, and adds their events to the window.
    fn flush(&mut self, key: ThreadKey) -> Result<(), ProfileError> {
        let Some(PendingChunks { header, words, chunks }) = self.pending.remove(&key) else { return Ok(()) };
        let header = LogFrameHeader { events: words.len() as u64, ..header };
        self.builder.write_journal(&header, &words)?;
        self.drained.chunks += chunks.len() as u64;
        chunks.iter().try_for_each(|chunk| self.live.release_chunk(chunk))?;
        self.builder.add_events(&header, &words)
    }
}

/// Selects the chunks that continue their threads without a gap, and advances `next`. The chunks must be sorted by thread and number.
fn select_in_order(next: &mut BTreeMap<ThreadKey, u64>, chunks: impl Iterator<Item = StreamChunk>) -> Vec<StreamChunk> {
    chunks
        .filter(|chunk| {
            let next = next.entry(chunk.key).or_default();
            let follows = chunk.sequence == *next;
            *next += u64::from(follows);
            follows
        })
        .collect()
}

/// Counts the words in chunks that cannot be attributed to a thread because their headers are corrupt. Logs a warning for each chunk.
fn count_lost_words(live: &LiveStream) -> Result<u64, ProfileError> {
    let corrupt = live.corrupt_chunks()?;
    for offset in &corrupt {
        ::log::warn!("{}: the events in the chunk at byte {offset} are lost, because the chunk's header is corrupt", live.path().display());
    }
    Ok(corrupt.len() as u64 * CHUNK_EVENTS)
}

/// A part of a thread's stream that is not in a closed window.
struct DrainedPiece {
    header: LogFrameHeader,
    source: PieceSource,
}

enum PieceSource {
    Chunk(StreamChunk),
    Journal(PackedFrame),
}

/// Collects the pieces in journals and the stream file, by thread and number of the first chunk. Of pieces that begin at the same chunk,
/// the longest comes first.
fn remaining_pieces(live: &LiveStream, journals: &[PathBuf], corrupt_bytes: &mut u64) -> Result<Vec<DrainedPiece>, ProfileError> {
    let mut pieces = Vec::new();
    for path in journals {
        if log::has_incomplete_header(path)? {
            // The recorder was killed while it created the journal, before it returned any of the chunks to the program.
            continue;
        }
        let journal = StreamLog::open(path)?;
        *corrupt_bytes += journal.corrupt_bytes();
        for thread in journal.threads() {
            journal.visit_frames(thread, |frame| {
                pieces.push(DrainedPiece { header: frame.header, source: PieceSource::Journal(frame) });
                Ok(())
            })?;
        }
    }
    for chunk in live.chunks()? {
        let StreamChunk { key, parent, sequence, lost, .. } = chunk;
        let header =
            LogFrameHeader { content: LogContent::Events, key, parent, sequence, chunks: 1, lost, events: 0, depth: Depth::default() };
        pieces.push(DrainedPiece { header, source: PieceSource::Chunk(chunk) });
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

    /// A poll may see chunk 2 in one region, but have examined the region of chunk 1 before that chunk was full.
    #[test]
    fn chunk_after_a_gap_waits_for_the_next_poll() {
        let mut next = BTreeMap::new();
        let mut numbers = |seen: &[(u32, u64)]| -> Vec<(u32, u64)> {
            let taken = select_in_order(&mut next, seen.iter().map(|(thread, sequence)| chunk(*thread, *sequence)));
            taken.iter().map(|c| (c.key.thread, c.sequence)).collect()
        };
        assert_eq!(numbers(&[(1, 0), (1, 2), (2, 0), (2, 1)]), [(1, 0), (2, 0), (2, 1)]);
        assert_eq!(numbers(&[(1, 2), (1, 3)]), []);
        assert_eq!(numbers(&[(1, 1), (1, 2), (1, 3), (1, 5)]), [(1, 1), (1, 2), (1, 3)]);
    }
}
