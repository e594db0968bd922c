//! From a stream file to its log, while the program runs: full chunks become grammars, and are given back.
//!
//! Memory: for each thread that runs, the events of [`FRAME_CHUNKS`] chunks (256 KiB); and the open windows ([`super::builder`]). A chunk
//! is given back after its events were written to a journal, so that nothing is lost if the recorder is killed: the next one finds the
//! chunk or the journal, and takes what is there twice once.
//!
//! Order: regions are polled one after the other while the program writes, so that a later chunk may be seen without the one before.
//! Chunks of a thread are taken in the order of their numbers, which begin with 0 and have no gap; the others wait for the next poll.

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

/// Chunks of a frame.
const FRAME_CHUNKS: usize = 16;
/// So often only the places where the next chunk is expected are polled, before all are.
const QUICK_POLLS: u32 = 200;
/// After so many polls that found nothing everything is polled, and again after twice as many.
const FEW_POLLS: u32 = 4;
/// A drain that found nothing for so many polls closes its windows.
const IDLE_POLLS: u32 = 500;

/// Drains a stream file.
#[derive(Debug)]
pub struct Drain {
    live: LiveStream,
    builder: Builder,
    pending: BTreeMap<ThreadKey, Pending>,
    /// For each region the chunk that is expected to be full next.
    expected: Vec<u64>,
    /// For each thread the number of the chunk that is to be taken next.
    next: BTreeMap<ThreadKey, u64>,
    polls: u32,
    idle: u32,
    drained: Drained,
}

/// What was drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events.
    pub events: u64,
    /// Chunks.
    pub chunks: u64,
    /// Words that were no events.
    pub damaged: u64,
    /// Bytes of an earlier log and its journals in which no frame begins although one should.
    pub damaged_bytes: u64,
    /// Size of the log.
    pub bytes: u64,
    /// Threads of which nothing was written, since there was no room.
    pub lost: LostThreads,
}

#[derive(Debug)]
struct Pending {
    head: FrameHead,
    words: Vec<u32>,
    chunks: Vec<Chunk>,
}

impl Drain {
    /// Begins to drain a file into a log.
    ///
    /// # Errors
    /// The one cannot be read, the other not be written.
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
            drained: Drained::default(),
        })
    }

    /// How much its windows may hold from now on.
    pub fn set_bounds(&mut self, bounds: WindowBounds) {
        self.builder.set_bounds(bounds);
    }

    /// Whether it has open windows.
    pub fn is_active(&self) -> bool {
        self.builder.held() > 0
    }

    /// Takes chunks that are full; gives their number.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn poll(&mut self) -> Result<usize, ProfileError> {
        self.polls += 1;
        // Where nothing was found a few times, chunks may be full elsewhere than expected, and the program may wait for them.
        let is_thorough = self.polls.is_multiple_of(QUICK_POLLS) || self.idle >= FEW_POLLS && self.idle.is_power_of_two();
        let full = if is_thorough {
            self.any_chunks()?
        } else {
            let expected = self.expected_chunks()?;
            let are_there = !expected.is_empty();
            let next = self.next_of(expected);
            self.expect_behind(&next);
            // Where none of them is next, that is elsewhere.
            if are_there && next.is_empty() { self.any_chunks()? } else { next }
        };
        for chunk in &full {
            self.take(chunk)?;
        }
        self.idle = if full.is_empty() { self.idle.saturating_add(1) } else { 0 };
        if self.idle == IDLE_POLLS {
            self.flush_all()?;
            self.builder.close_all()?;
        }
        Ok(full.len())
    }

    /// Takes all that is left, of a program that has ended.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn finish(mut self) -> Result<Drained, ProfileError> {
        self.flush_all()?;
        for chunk in self.live.chunks()? {
            self.take(&chunk)?;
        }
        self.flush_all()?;
        self.drained.damaged += damaged_words(&self.live)?;
        let bytes = self.builder.close_all()?;
        Ok(Drained { bytes, events: self.builder.symbols(), lost: self.live.lost_threads()?, ..self.drained })
    }

    /// The log of a program that has ended, of its stream file and of the log and journals that another wrote of it before. These are
    /// left as they are.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn resume(stream: &Path, log: &Path, before: Option<&Path>, method: CompressionMethod) -> Result<Drained, ProfileError> {
        let live = LiveStream::open(stream, false)?;
        // Before the chunks are looked for, so that a program that still runs is not ahead of them.
        let ends = live.ends()?;
        let mut builder = Builder::create(log, live.head(), method, WindowBounds::default())?;
        let mut drained = Drained::default();
        if let Some(before) = before {
            let windows = StreamLog::open(before)?;
            drained.damaged_bytes += windows.damaged_bytes();
            for thread in windows.threads() {
                windows.visit_frames(thread, |frame| builder.take_window(&frame.head, &frame.packed, frame.section.unpacked_length()))?;
            }
        }
        let journals = before.map_or(Ok(Vec::new()), journals_of)?;
        let rest = rest_of(&live, &journals, &mut drained.damaged_bytes)?;
        for rest in rest.chunk_by(|a, b| a.head.key == b.head.key) {
            let mut next = builder.next_of(rest[0].head.key);
            for rest in rest {
                if rest.head.sequence < next {
                    continue;
                }
                let mut words = Vec::new();
                match &rest.source {
                    Source::Chunk(chunk) => drained.damaged += live.read_events(chunk, &mut words)?,
                    Source::Journal(frame) => words = log::words(frame, stream)?,
                }
                builder.take(&rest.head, &words)?;
                drained.chunks += rest.head.chunks;
                next = rest.head.sequence.saturating_add(rest.head.chunks);
            }
        }
        drained.damaged += damaged_words(&live)?;
        // A journal or log may lack its end, of chunks that were given back.
        ends.into_iter().try_for_each(|(key, end)| builder.end_at(key, end))?;
        let bytes = builder.close_all()?;
        Ok(Drained { bytes, events: builder.symbols(), lost: live.lost_threads()?, ..drained })
    }

    /// The file that is drained.
    pub fn live(&self) -> &LiveStream {
        &self.live
    }

    /// Full chunks that follow, wherever they are.
    fn any_chunks(&mut self) -> Result<Vec<Chunk>, ProfileError> {
        let full = self.live.chunks()?.into_iter().filter(|c| c.is_full).collect();
        let full = self.next_of(full);
        self.expected.resize(self.live.regions()? as usize, 0);
        full.iter().for_each(|c| self.expected[c.place.0 as usize] = (c.place.1 + 1) % SLOTS);
        Ok(full)
    }

    /// Those that follow what was taken. What is pending was not given back yet.
    fn next_of(&mut self, chunks: Vec<Chunk>) -> Vec<Chunk> {
        let is_known = |c: &Chunk| self.pending.get(&c.key).is_some_and(|p| p.chunks.iter().any(|k| k.place == c.place));
        in_order(&mut self.next, chunks.into_iter().filter(|c| !is_known(c)))
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

    /// Of each region the chunk behind those that were taken is expected.
    fn expect_behind(&mut self, taken: &[Chunk]) {
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

/// Those of some chunks, sorted by thread and number, that follow what was taken of their threads.
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

/// Number of words in chunks whose headers are damaged: which thread wrote them is unknown.
fn damaged_words(live: &LiveStream) -> Result<u64, ProfileError> {
    let damaged = live.damaged_chunks()?;
    for offset in &damaged {
        ::log::warn!("{}: the header of the chunk at byte {offset} is damaged: its events are lost", live.path().display());
    }
    Ok(damaged.len() as u64 * CHUNK_EVENTS)
}

/// What is not in a closed window.
struct Rest {
    head: FrameHead,
    source: Source,
}

enum Source {
    /// A chunk of the stream file.
    Chunk(Chunk),
    /// A frame of a journal; all of a thread's together have the journal's bytes.
    Journal(PackedFrame),
}

/// What journals and a stream file have, by thread and place in its stream; of what is there twice, the longer stretch first.
fn rest_of(live: &LiveStream, journals: &[PathBuf], damaged_bytes: &mut u64) -> Result<Vec<Rest>, ProfileError> {
    let mut rest = Vec::new();
    for path in journals {
        if log::is_begun(path)? {
            // The recorder was killed before it had a head: its chunks were not given back.
            continue;
        }
        let journal = StreamLog::open(path)?;
        *damaged_bytes += journal.damaged_bytes();
        for thread in journal.threads() {
            journal.visit_frames(thread, |frame| {
                rest.push(Rest { head: frame.head, source: Source::Journal(frame) });
                Ok(())
            })?;
        }
    }
    for chunk in live.chunks()? {
        let Chunk { key, parent, sequence, lost, .. } = chunk;
        let head = FrameHead { content: LogContent::Events, key, parent, sequence, chunks: 1, lost, events: 0, depth: Depth::default() };
        rest.push(Rest { head, source: Source::Chunk(chunk) });
    }
    rest.sort_by_key(|r| (r.head.key, r.head.sequence, std::cmp::Reverse(r.head.chunks)));
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(thread: u32, sequence: u64) -> Chunk {
        let key = ThreadKey { process: 1, started_ns: 1, thread };
        Chunk { key, parent: None, sequence, lost: 0, template: 0, is_full: true, place: (sequence % 2, sequence / 2) }
    }

    /// A pass sees chunk 2 in one region, but saw the other region before chunk 1 was full in it.
    #[test]
    fn a_chunk_that_is_seen_too_early_waits() {
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
