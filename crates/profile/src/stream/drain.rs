//! From a stream file to its log, while the program runs: full chunks become grammars, and are given back.
//!
//! Memory: for each thread that runs, the events of [`FRAME_CHUNKS`] chunks (256 KiB); and the open windows ([`super::builder`]). A chunk
//! is given back after its events were written to a journal, so that nothing is lost if the recorder is killed: the next one finds the
//! chunk or the journal, and takes what is there twice once.

use super::builder::{Builder, WindowBounds, journals_of};
use super::live::{Chunk, LiveStream, ThreadKey};
use super::log::{self, Content, FrameHead, PackedFrame, StreamLog};
use super::symbol::Depth;
use crate::error::ProfileError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trodden_sequence::Method;
use trodden_wire::stream::SLOTS;

/// Chunks of a frame.
const FRAME_CHUNKS: usize = 16;
/// So often it is only looked where the next chunk is expected, before all are.
const QUICK_LOOKS: u32 = 200;
/// A drain that found nothing for so many looks closes its windows.
const IDLE_LOOKS: u32 = 500;

/// Drains a stream file.
#[derive(Debug)]
pub struct Drain {
    live: LiveStream,
    builder: Builder,
    pending: BTreeMap<ThreadKey, Pending>,
    /// For each region the chunk that is expected to be full next.
    expected: Vec<u64>,
    looks: u32,
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
    /// Size of the log.
    pub bytes: u64,
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
    pub fn begin(stream: &Path, log: &Path, method: Method) -> Result<Drain, ProfileError> {
        let live = LiveStream::open(stream, true)?;
        let builder = Builder::create(log, live.head(), method, WindowBounds::default())?;
        Ok(Drain { live, builder, pending: BTreeMap::new(), expected: Vec::new(), looks: 0, idle: 0, drained: Drained::default() })
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
        self.looks += 1;
        let full = match self.looks % QUICK_LOOKS {
            0 => self.live.chunks()?.into_iter().filter(|c| c.is_full).collect(),
            _ => self.expected_chunks()?,
        };
        // What is pending was not given back yet.
        let is_known = |c: &Chunk| self.pending.get(&c.key).is_some_and(|p| p.chunks.iter().any(|k| k.place == c.place));
        let full: Vec<Chunk> = full.into_iter().filter(|c| !is_known(c)).collect();
        for chunk in &full {
            self.take(chunk)?;
        }
        self.idle = if full.is_empty() { self.idle.saturating_add(1) } else { 0 };
        if self.idle == IDLE_LOOKS {
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
        let bytes = self.builder.close_all()?;
        Ok(Drained { bytes, events: self.builder.symbols(), ..self.drained })
    }

    /// The log of a program that has ended, of its stream file and of the log and journals that another wrote of it before. These are
    /// left as they are.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn resume(stream: &Path, log: &Path, before: Option<&Path>, method: Method) -> Result<Drained, ProfileError> {
        let live = LiveStream::open(stream, false)?;
        let mut builder = Builder::create(log, live.head(), method, WindowBounds::default())?;
        let mut drained = Drained::default();
        if let Some(before) = before {
            let windows = StreamLog::open(before)?;
            for thread in windows.threads() {
                windows.visit_frames(thread, |frame| builder.take_window(&frame.head, &frame.packed, frame.plain))?;
            }
        }
        let journals = before.map_or(Ok(Vec::new()), journals_of)?;
        let rest = rest_of(&live, &journals)?;
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
                next = rest.head.sequence + rest.head.chunks;
            }
        }
        let bytes = builder.close_all()?;
        Ok(Drained { bytes, events: builder.symbols(), ..drained })
    }

    /// The file that is drained.
    pub fn live(&self) -> &LiveStream {
        &self.live
    }

    fn expected_chunks(&mut self) -> Result<Vec<Chunk>, ProfileError> {
        self.expected.resize(self.live.regions()? as usize, 0);
        let mut full = Vec::new();
        for region in 0..self.expected.len() {
            for _ in 0..SLOTS {
                let Some(chunk) = self.live.chunk(region as u64, self.expected[region])?.filter(|c| c.is_full) else { break };
                full.push(chunk);
                self.expected[region] = (self.expected[region] + 1) % SLOTS;
            }
        }
        full.sort_by_key(|c| (c.key, c.sequence));
        Ok(full)
    }

    fn take(&mut self, chunk: &Chunk) -> Result<(), ProfileError> {
        let follows = |p: &Pending| p.head.sequence + p.head.chunks == chunk.sequence && p.head.lost == chunk.lost;
        if self.pending.get(&chunk.key).is_some_and(|p| !follows(p) || p.chunks.len() == FRAME_CHUNKS) {
            self.flush(chunk.key)?;
        }
        let Chunk { key, parent, sequence, lost, .. } = *chunk;
        let head = FrameHead { content: Content::Events, key, parent, sequence, chunks: 0, lost, events: 0, depth: Depth::new() };
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
fn rest_of(live: &LiveStream, journals: &[PathBuf]) -> Result<Vec<Rest>, ProfileError> {
    let mut rest = Vec::new();
    for path in journals {
        // One that was begun when the recorder was killed has no head: its chunks were not given back.
        let Ok(journal) = StreamLog::open(path) else { continue };
        for thread in journal.threads() {
            journal.visit_frames(thread, |frame| {
                rest.push(Rest { head: frame.head, source: Source::Journal(frame) });
                Ok(())
            })?;
        }
    }
    for chunk in live.chunks()? {
        let Chunk { key, parent, sequence, lost, .. } = chunk;
        let head = FrameHead { content: Content::Events, key, parent, sequence, chunks: 1, lost, events: 0, depth: Depth::new() };
        rest.push(Rest { head, source: Source::Chunk(chunk) });
    }
    rest.sort_by_key(|r| (r.head.key, r.head.sequence, std::cmp::Reverse(r.head.chunks)));
    Ok(rest)
}
