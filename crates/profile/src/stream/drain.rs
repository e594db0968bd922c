//! From a stream file to its log, while the program runs: full chunks are compressed, written, and given back.
//!
//! Memory: for each thread, the events of [`FRAME_CHUNKS`] chunks (256 KiB); besides, the frame that is written. A chunk
//! is given back after its frame was written, so that nothing is lost if the recorder is killed: the next one
//! finds the chunk again, and readers of logs pass over what is there twice.

use super::live::{Chunk, LiveStream, ThreadKey};
use super::log::{FrameHead, LogWriter, StreamLog};
use crate::error::ProfileError;
use std::collections::BTreeMap;
use std::path::Path;
use trodden_wire::stream::SLOTS;

/// Chunks of a frame.
const FRAME_CHUNKS: usize = 16;
/// So often it is only looked where the next chunk is expected, before all are.
const QUICK_LOOKS: u32 = 200;

/// Drains a stream file.
#[derive(Debug)]
pub struct Drain {
    live: LiveStream,
    log: LogWriter,
    pending: BTreeMap<ThreadKey, Pending>,
    /// For each region the chunk that is expected to be full next.
    expected: Vec<u64>,
    looks: u32,
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
    pub fn begin(stream: &Path, log: &Path) -> Result<Drain, ProfileError> {
        let live = LiveStream::open(stream, true)?;
        let log = LogWriter::create(log, live.head())?;
        Ok(Drain { live, log, pending: BTreeMap::new(), expected: Vec::new(), looks: 0, drained: Drained::default() })
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
        Ok(Drained { bytes: self.log.bytes(), ..self.drained })
    }

    /// The log of a program that has ended, of its stream file and of the log that another wrote of it before. The
    /// file is left as it is.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn resume(stream: &Path, log: &Path, before: Option<&Path>) -> Result<Drained, ProfileError> {
        let live = LiveStream::open(stream, false)?;
        let mut writer = LogWriter::create(log, live.head())?;
        let mut drained = Drained::default();
        if let Some(before) = before {
            let before = StreamLog::open(before)?;
            for thread in before.threads() {
                before.visit_frames(thread, |head, words| {
                    drained.events += words.len() as u64;
                    writer.append(head, words)
                })?;
            }
        }
        for chunk in live.chunks()? {
            let mut words = Vec::new();
            drained.damaged += live.read_events(&chunk, &mut words)?;
            let Chunk { key, parent, sequence, lost, .. } = chunk;
            writer.append(FrameHead { key, parent, sequence, chunks: 1, lost, events: words.len() as u32 }, &words)?;
            drained.events += words.len() as u64;
            drained.chunks += 1;
        }
        Ok(Drained { bytes: writer.bytes(), ..drained })
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
        let follows = |p: &Pending| p.head.sequence + u64::from(p.head.chunks) == chunk.sequence && p.head.lost == chunk.lost;
        if self.pending.get(&chunk.key).is_some_and(|p| !follows(p) || p.chunks.len() == FRAME_CHUNKS) {
            self.flush(chunk.key)?;
        }
        let Chunk { key, parent, sequence, lost, .. } = *chunk;
        let head = FrameHead { key, parent, sequence, chunks: 0, lost, events: 0 };
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
        self.log.append(FrameHead { events: words.len() as u32, ..head }, &words)?;
        self.drained.events += words.len() as u64;
        self.drained.chunks += chunks.len() as u64;
        chunks.iter().try_for_each(|chunk| self.live.give_back(chunk))
    }
}
