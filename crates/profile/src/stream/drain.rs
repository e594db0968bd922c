//! Moves full chunks from a stream file to its log while the program runs.
//!
//! A chunk is given back to the program only after its events are in a journal. If the recorder is killed, the next one finds each chunk in
//! the stream file, in the journal, or in both, and takes it once.
//!
//! Regions are polled one after the other while the program writes, so a later chunk of a thread may be seen before an earlier one. Chunks
//! are therefore taken in the order of their numbers; those after a gap wait for the next poll.

use super::builder::{Builder, WindowBounds, journals_of};
use super::live::{Chunk, LiveStream, ThreadKey};
use super::log::{self, FrameHead, LogContent, PackedFrame, StreamLog};
use super::symbol::Depth;
use crate::error::ProfileError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trodden_sequence::CompressionMethod;
use trodden_wire::LostThreads;
use trodden_wire::stream::{CHUNK_EVENTS, SLOTS};

/// Number of chunks of a thread (256 KiB) that are collected before they are written as one frame.
const FRAME_CHUNKS: usize = 16;
/// Every so many polls all chunks are examined, instead of only those that are expected to be full next.
const FULL_SCAN_INTERVAL: u32 = 200;
/// After this many polls without a full chunk, all chunks are examined; again whenever the number of such polls is a power of two.
const IDLE_POLLS_BEFORE_SCAN: u32 = 4;
/// After this many polls without a full chunk, the open windows are closed.
const IDLE_POLLS_BEFORE_CLOSE: u32 = 500;

/// Drains a stream file.
#[derive(Debug)]
pub struct Drain {
    live: LiveStream,
    builder: Builder,
    pending: BTreeMap<ThreadKey, Pending>,
    /// For each region, the slot that is expected to be full next.
    expected: Vec<u64>,
    /// For each thread, the number of the next chunk to take.
    next: BTreeMap<ThreadKey, u64>,
    polls: u32,
    idle: u32,
    drained: DrainTotals,
}

/// What a drain wrote and what it missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainTotals {
    /// Number of events.
    pub events: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of words that are not events.
    pub damaged: u64,
    /// Number of unreadable bytes in an earlier log and its journals ([`StreamLog::damaged_bytes`]).
    pub damaged_bytes: u64,
    /// Size of the log in bytes.
    pub bytes: u64,
    /// Threads that recorded nothing, because there was no room.
    pub lost: LostThreads,
}

#[derive(Debug)]
struct Pending {
    head: FrameHead,
    words: Vec<u32>,
    chunks: Vec<Chunk>,
}

impl Drain {
    /// Starts to drain the stream file `stream` into a new log.
    pub fn begin(stream: &Path, log: &Path, method: CompressionMethod) -> Result<Drain, ProfileError> {
        let live = LiveStream::open(stream, true)?;
        let builder = Builder::create(log, live.head(), method, WindowBounds::default())?;
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

    /// Returns whether windows are open.
    pub fn is_active(&self) -> bool {
        self.builder.held() > 0
    }

    /// Takes the chunks that are full and returns their number.
    pub fn poll(&mut self) -> Result<usize, ProfileError> {
        self.polls += 1;
        // After a few fruitless polls, chunks elsewhere than expected may be full, and the program may be waiting for them.
        let is_thorough =
            self.polls.is_multiple_of(FULL_SCAN_INTERVAL) || self.idle >= IDLE_POLLS_BEFORE_SCAN && self.idle.is_power_of_two();
        let full = if is_thorough {
            self.scan_all_chunks()?
        } else {
            let expected = self.expected_chunks()?;
            let some_full = !expected.is_empty();
            let next = self.keep_next(expected);
            self.advance_expected(&next);
            // Full chunks were found, but none of them is its thread's next one: it must be elsewhere.
            if some_full && next.is_empty() { self.scan_all_chunks()? } else { next }
        };
        for chunk in &full {
            self.take(chunk)?;
        }
        self.idle = if full.is_empty() { self.idle.saturating_add(1) } else { 0 };
        if self.idle == IDLE_POLLS_BEFORE_CLOSE {
            self.flush_all()?;
            self.builder.close_all()?;
        }
        Ok(full.len())
    }

    /// Takes everything that is left after the program has ended.
    pub fn finish(mut self) -> Result<DrainTotals, ProfileError> {
        self.flush_all()?;
        for chunk in self.live.chunks()? {
            self.take(&chunk)?;
        }
        self.flush_all()?;
        self.drained.damaged += damaged_words(&self.live)?;
        let bytes = self.builder.close_all()?;
        Ok(DrainTotals { bytes, events: self.builder.symbols(), lost: self.live.lost_threads()?, ..self.drained })
    }

    /// Makes the log of a program that has ended from its stream file and from the log and journals that an earlier recorder left. These
    /// stay unchanged.
    pub fn resume(stream: &Path, log: &Path, before: Option<&Path>, method: CompressionMethod) -> Result<DrainTotals, ProfileError> {
        let live = LiveStream::open(stream, false)?;
        // Read before the chunks, so that a program that is still running cannot be ahead of them.
        let ends = live.ends()?;
        let mut builder = Builder::create(log, live.head(), method, WindowBounds::default())?;
        let mut drained = DrainTotals::default();
        if let Some(before) = before {
            let windows = StreamLog::open(before)?;
            drained.damaged_bytes += windows.damaged_bytes();
            for thread in windows.threads() {
                windows.visit_frames(thread, |frame| builder.take_window(&frame.head, &frame.packed, frame.section.unpacked_length()))?;
            }
        }
        let journals = before.map_or(Ok(Vec::new()), journals_of)?;
        let pieces = remaining_pieces(&live, &journals, &mut drained.damaged_bytes)?;
        for thread_pieces in pieces.chunk_by(|a, b| a.head.key == b.head.key) {
            let mut next = builder.next_chunk(thread_pieces[0].head.key);
            for piece in thread_pieces {
                if piece.head.sequence < next {
                    continue;
                }
                let mut words = Vec::new();
                match &piece.source {
                    Source::Chunk(chunk) => drained.damaged += live.read_events(chunk, &mut words)?,
                    Source::Journal(frame) => words = log::words(frame, stream)?,
                }
                builder.take(&piece.head, &words)?;
                drained.chunks += piece.head.chunks;
                next = piece.head.sequence.saturating_add(piece.head.chunks);
            }
        }
        drained.damaged += damaged_words(&live)?;
        // A truncated journal or log may lack chunks that were given back already.
        ends.into_iter().try_for_each(|(key, end)| builder.end_at(key, end))?;
        let bytes = builder.close_all()?;
        Ok(DrainTotals { bytes, events: builder.symbols(), lost: live.lost_threads()?, ..drained })
    }

    /// The file that is drained.
    pub fn live(&self) -> &LiveStream {
        &self.live
    }

    /// Finds, in all regions, the full chunks that are next for their threads.
    fn scan_all_chunks(&mut self) -> Result<Vec<Chunk>, ProfileError> {
        let full = self.live.chunks()?.into_iter().filter(|c| c.is_full).collect();
        let full = self.keep_next(full);
        self.expected.resize(self.live.regions()? as usize, 0);
        full.iter().for_each(|c| self.expected[c.place.0 as usize] = (c.place.1 + 1) % SLOTS);
        Ok(full)
    }

    /// Keeps the chunks that are next for their threads, without those that are pending (taken but not given back yet).
    fn keep_next(&mut self, chunks: Vec<Chunk>) -> Vec<Chunk> {
        let is_pending = |c: &Chunk| self.pending.get(&c.key).is_some_and(|p| p.chunks.iter().any(|k| k.place == c.place));
        in_order(&mut self.next, chunks.into_iter().filter(|c| !is_pending(c)))
    }

    fn expected_chunks(&mut self) -> Result<Vec<Chunk>, ProfileError> {
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

    /// Advances the expected slot of each region past the chunks that were taken.
    fn advance_expected(&mut self, taken: &[Chunk]) {
        let taken: BTreeSet<(u64, u64)> = taken.iter().map(|c| c.place).collect();
        for (region, expected) in self.expected.iter_mut().enumerate() {
            for _ in 0..SLOTS {
                if !taken.contains(&(region as u64, *expected)) {
                    break;
                }
                *expected = (*expected + 1) % SLOTS;
            }
        }
    }

    fn take(&mut self, chunk: &Chunk) -> Result<(), ProfileError> {
        let follows = |p: &Pending| p.head.sequence + p.head.chunks == chunk.sequence && p.head.lost == chunk.lost;
        if self.pending.get(&chunk.key).is_some_and(|p| !follows(p) || p.chunks.len() == FRAME_CHUNKS) {
            self.flush(chunk.key)?;
        }
        let Chunk { key, parent, sequence, lost, .. } = *chunk;
        let head = FrameHead { content: LogContent::Events, key, parent, sequence, chunks: 0, lost, events: 0, depth: Depth::default() };
        let pending = self.pending.entry(key).or_insert_with(|| Pending { head, words: Vec::new(), chunks: Vec::new() });
        self.drained.damaged += self.live.read_events(chunk, &mut pending.words)?;
        pending.head.chunks += 1;
        pending.chunks.push(chunk.clone());
        Ok(())
    }

    fn flush_all(&mut self) -> Result<(), ProfileError> {
        let keys: Vec<ThreadKey> = self.pending.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.flush(key))
    }

    fn flush(&mut self, key: ThreadKey) -> Result<(), ProfileError> {
        let Some(Pending { head, words, chunks }) = self.pending.remove(&key) else { return Ok(()) };
        let head = FrameHead { events: words.len() as u64, ..head };
        self.builder.write_journal(&head, &words)?;
        self.drained.chunks += chunks.len() as u64;
        chunks.iter().try_for_each(|chunk| self.live.give_back(chunk))?;
        self.builder.take(&head, &words)
    }
}

/// Keeps the chunks that continue their threads without a gap, and advances `next`. The chunks are sorted by thread and number.
fn in_order(next: &mut BTreeMap<ThreadKey, u64>, chunks: impl Iterator<Item = Chunk>) -> Vec<Chunk> {
    chunks
        .filter(|chunk| {
            let next = next.entry(chunk.key).or_default();
            let follows = chunk.sequence == *next;
            *next += u64::from(follows);
            follows
        })
        .collect()
}

/// Counts the words in chunks whose headers are damaged, so that their threads are unknown, and warns of each.
fn damaged_words(live: &LiveStream) -> Result<u64, ProfileError> {
    let damaged = live.damaged_chunks()?;
    for offset in &damaged {
        ::log::warn!("{}: the header of the chunk at byte {offset} is damaged: its events are lost", live.path().display());
    }
    Ok(damaged.len() as u64 * CHUNK_EVENTS)
}

/// A piece of a stream that is in no closed window.
struct DrainedPiece {
    head: FrameHead,
    source: Source,
}

enum Source {
    /// A chunk of the stream file.
    Chunk(Chunk),
    /// A frame of a journal.
    Journal(PackedFrame),
}

/// Collects the pieces in journals and the stream file, by thread and number; of pieces that begin alike, the longer one comes first.
fn remaining_pieces(live: &LiveStream, journals: &[PathBuf], damaged_bytes: &mut u64) -> Result<Vec<DrainedPiece>, ProfileError> {
    let mut pieces = Vec::new();
    for path in journals {
        if log::is_incomplete_head(path)? {
            // The recorder was killed while it created the journal, so it had not given back any of its chunks.
            continue;
        }
        let journal = StreamLog::open(path)?;
        *damaged_bytes += journal.damaged_bytes();
        for thread in journal.threads() {
            journal.visit_frames(thread, |frame| {
                pieces.push(DrainedPiece { head: frame.head, source: Source::Journal(frame) });
                Ok(())
            })?;
        }
    }
    for chunk in live.chunks()? {
        let Chunk { key, parent, sequence, lost, .. } = chunk;
        let head = FrameHead { content: LogContent::Events, key, parent, sequence, chunks: 1, lost, events: 0, depth: Depth::default() };
        pieces.push(DrainedPiece { head, source: Source::Chunk(chunk) });
    }
    pieces.sort_by_key(|r| (r.head.key, r.head.sequence, std::cmp::Reverse(r.head.chunks)));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(thread: u32, sequence: u64) -> Chunk {
        let key = ThreadKey { process: 1, started_ns: 1, thread };
        Chunk { key, parent: None, sequence, lost: 0, template: 0, is_full: true, place: (sequence % 2, sequence / 2) }
    }

    /// A poll may see chunk 2 in one region although it examined the other region before chunk 1 was full there.
    #[test]
    fn chunk_after_a_gap_waits_for_the_next_poll() {
        let mut next = BTreeMap::new();
        let mut numbers = |seen: &[(u32, u64)]| -> Vec<(u32, u64)> {
            let taken = in_order(&mut next, seen.iter().map(|(thread, sequence)| chunk(*thread, *sequence)));
            taken.iter().map(|c| (c.key.thread, c.sequence)).collect()
        };
        assert_eq!(numbers(&[(1, 0), (1, 2), (2, 0), (2, 1)]), [(1, 0), (2, 0), (2, 1)]);
        assert_eq!(numbers(&[(1, 2), (1, 3)]), []);
        assert_eq!(numbers(&[(1, 1), (1, 2), (1, 3), (1, 5)]), [(1, 1), (1, 2), (1, 3)]);
    }
}
