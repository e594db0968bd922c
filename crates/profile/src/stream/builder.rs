//! Builds the compressed windows of a stream log while the program runs.
//!
//! Each thread has one open window. The window's events are also written to a *journal*, a log of uncompressed event frames, so that chunks
//! can be returned to the program immediately and nothing is lost if the recorder is killed. The journal is removed once its window is in
//! the log.
//!
//! Invariant: a window ends at the end of a frame of its journal, and contains no gap. Events between two windows of a thread were lost.

use super::live::{StreamHeader, ThreadKey};
use super::log::{LogContent, LogFrameHeader, LogWriter};
use super::symbol::Depth;
use crate::error::ProfileError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_sequence::grammar::Window;
use trodden_sequence::{CompressionMethod, Compressor};
use trodden_wire::stream::Event;

/// Extension of journals.
pub const JOURNAL_EXTENSION: &str = "journal";
/// Maximum number of bytes that a compressor needs for each entry in its memory ([`Compressor::items_in_memory`]).
pub const BYTES_PER_ENTRY: usize = 200;

/// Limits at which windows are closed. They are checked after each frame, so the last frame may exceed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBounds {
    /// Maximum number of entries of all open windows of a file together ([`Compressor::items_in_memory`], [`BYTES_PER_ENTRY`] each). If it
    /// is exceeded, the largest windows are closed.
    pub max_entries: usize,
    /// Maximum size of a thread's journal in bytes. If it is exceeded, the thread's window is closed.
    pub max_journal_bytes: u64,
}

impl Default for WindowBounds {
    /// About 100 MB of memory, and a journal of 32 MiB for each thread.
    fn default() -> WindowBounds {
        WindowBounds { max_entries: 1 << 19, max_journal_bytes: 32 << 20 }
    }
}

pub struct LogBuilder {
    log: LogWriter,
    header: StreamHeader,
    method: CompressionMethod,
    bounds: WindowBounds,
    open: BTreeMap<ThreadKey, OpenWindow>,
    /// By thread, the end of its last closed window: the next chunk's number, the depth, and the number of lost events.
    ended: BTreeMap<ThreadKey, (u64, Depth, u64)>,
    /// Number of symbols in closed windows.
    symbols: u64,
}

struct OpenWindow {
    header: LogFrameHeader,
    compressor: Box<dyn Compressor + Send>,
    journal: PathBuf,
    journal_bytes: u64,
}

impl std::fmt::Debug for LogBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("log", &self.log).field("method", &self.method).field("open", &self.open.len()).finish()
    }
}

impl LogBuilder {
    pub fn create(path: &Path, header: &StreamHeader, method: CompressionMethod, bounds: WindowBounds) -> Result<LogBuilder, ProfileError> {
        let log = LogWriter::create(path, header)?;
        let (open, ended) = (BTreeMap::new(), BTreeMap::new());
        Ok(LogBuilder { log, header: header.clone(), method, bounds, open, ended, symbols: 0 })
    }

    pub fn set_bounds(&mut self, bounds: WindowBounds) {
        self.bounds = bounds;
    }

    /// Appends a closed window of a different log.
    pub(super) fn append_window(&mut self, header: &LogFrameHeader, packed: &[u8], unpacked: u64) -> Result<(), ProfileError> {
        self.log.append_packed(header, packed, unpacked)?;
        self.symbols += header.events;
        self.ended.insert(header.key, (header.sequence + header.chunks, header.depth, header.lost));
        Ok(())
    }

    /// Returns the number of the thread's first chunk after its last closed window.
    pub(super) fn next_chunk(&self, key: ThreadKey) -> u64 {
        self.ended.get(&key).map_or(0, |ended| ended.0)
    }

    /// Appends events to their thread's journal, so that they survive if the recorder is killed.
    pub fn write_journal(&mut self, header: &LogFrameHeader, words: &[u32]) -> Result<(), ProfileError> {
        let window = self.window(header);
        let mut journal = match window.journal_bytes {
            0 => LogWriter::create(&window.journal.clone(), &self.header)?,
            _ => LogWriter::reopen(&window.journal)?,
        };
        let plain: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        journal.append(header, &plain)?;
        let bytes = journal.bytes();
        self.window(header).journal_bytes = bytes;
        Ok(())
    }

    /// Adds events to their thread's window, and closes windows that exceed the bounds. The events must already be in the journal.
    pub fn add_events(&mut self, header: &LogFrameHeader, words: &[u32]) -> Result<(), ProfileError> {
        let bounds = self.bounds;
        if self.open.get(&header.key).is_some_and(|window| header.sequence != window.header.sequence + window.header.chunks) {
            // The events do not follow those in the window, so a new window begins. Readers see the gap between the two.
            self.close(header.key)?;
        }
        let window = self.window(header);
        if window.header.lost != header.lost {
            // After a gap, the depths in events are unknown.
            window.header.depth.is_known = false;
        }
        let (mut depth, mut symbols) = (window.header.depth, 0);
        for event in words.iter().filter_map(|word| Event::from_stored(*word)) {
            if let Some(symbol) = depth.next_symbol(event) {
                window.compressor.push(symbol.to_number());
                symbols += 1;
            }
        }
        window.header.depth = depth;
        window.header.events += symbols;
        window.header.chunks = header.sequence + header.chunks - window.header.sequence;
        window.header.lost = header.lost;
        if window.journal_bytes >= bounds.max_journal_bytes {
            return self.close(header.key);
        }
        while self.entries_in_memory() > bounds.max_entries {
            let Some(largest) = self.open.iter().max_by_key(|(_, w)| w.compressor.items_in_memory()).map(|(key, _)| *key) else { break };
            self.close(largest)?;
        }
        Ok(())
    }

    /// Records that a thread wrote `end` chunks. Chunks after its last window are missing.
    pub(super) fn end_thread(&mut self, key: ThreadKey, end: u64) -> Result<(), ProfileError> {
        self.close(key)?;
        let (next, depth, lost) = self.ended.get(&key).copied().unwrap_or((0, Depth::default(), 0));
        if next < end {
            // An empty window after the gap makes the gap visible to readers.
            let depth = Depth { is_known: false, ..depth };
            let content = LogContent::Window;
            self.window(&LogFrameHeader { content, key, parent: None, sequence: end, chunks: 0, lost, events: 0, depth });
            self.close(key)?;
        }
        Ok(())
    }

    /// Returns the number of entries in the open windows' memory.
    pub fn entries_in_memory(&self) -> usize {
        self.open.values().map(|w| w.compressor.items_in_memory()).sum()
    }

    pub fn symbols(&self) -> u64 {
        self.symbols + self.open.values().map(|w| w.header.events).sum::<u64>()
    }

    /// Closes all windows and returns the size of the log in bytes.
    pub fn close_all(&mut self) -> Result<u64, ProfileError> {
        let keys: Vec<ThreadKey> = self.open.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.close(key))?;
        Ok(self.log.bytes())
    }

    fn window(&mut self, header: &LogFrameHeader) -> &mut OpenWindow {
        let (method, ended, log) = (self.method, &self.ended, self.log.path());
        self.open.entry(header.key).or_insert_with(|| {
            let (next, depth, lost) = ended.get(&header.key).copied().unwrap_or((0, Depth::default(), 0));
            let is_known = depth.is_known && next == header.sequence && lost == header.lost;
            let depth = Depth { is_known, ..depth };
            let header = LogFrameHeader { content: LogContent::Window, chunks: 0, events: 0, depth, ..*header };
            OpenWindow { header, compressor: method.compressor(), journal: journal_path(log, header.key), journal_bytes: 0 }
        })
    }

    /// Writes a thread's window to the log, then removes the thread's journal.
    fn close(&mut self, key: ThreadKey) -> Result<(), ProfileError> {
        let Some(OpenWindow { header, compressor, journal, journal_bytes }) = self.open.remove(&key) else { return Ok(()) };
        let failed = |e: trodden_sequence::SequenceError| ProfileError::io(self.log.path(), "write")(std::io::Error::other(e));
        let grammar = compressor.close().map_err(failed)?;
        let mut bytes = Vec::new();
        Window { first: 0, method: self.method, grammar }.write(&mut bytes).map_err(failed)?;
        self.log.append(&header, &bytes)?;
        self.symbols += header.events;
        self.ended.insert(key, (header.sequence + header.chunks, header.depth, header.lost));
        if journal_bytes > 0 {
            fs::remove_file(&journal).map_err(ProfileError::io(&journal, "remove"))?;
        }
        Ok(())
    }
}

fn journal_path(log: &Path, key: ThreadKey) -> PathBuf {
    log.with_extension(format!("{}-{}-{}.{JOURNAL_EXTENSION}", key.process, key.thread, key.started_ns))
}

/// Finds the journals that a killed recorder left next to a log.
pub fn find_journals(log: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    let folder = log.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let begin = log.with_extension("");
    let begin = begin.file_name().map(|n| n.to_string_lossy().into_owned() + ".").unwrap_or_default();
    let mut journals = Vec::new();
    for entry in fs::read_dir(folder).map_err(ProfileError::io(folder, "read"))? {
        let path = entry.map_err(ProfileError::io(folder, "read"))?.path();
        let has_log_name = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&begin));
        if has_log_name && path.extension().is_some_and(|e| e == JOURNAL_EXTENSION) {
            journals.push(path);
        }
    }
    journals.sort();
    Ok(journals)
}
