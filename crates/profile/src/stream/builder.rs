//! Builds the compressed windows of a stream log while the traced program runs. A stream is the sequence of paths that a thread executes,
//! and a window is a compressed part of it.
//!
//! Each thread has one open window. The window's events are also written uncompressed to a *journal*, so that the memory of the events can
//! be returned to the program immediately and nothing is lost if the recorder is killed. The journal is removed once its window is in the
//! log.
//!
//! Invariant: a window ends where a frame (a section) of its journal ends, and contains no gap. Between two windows of a thread, events may
//! have been lost.

use super::live::{StreamHeader, ThreadKey};
use super::log::{LogFrameContent, LogFrameHeader, StreamLogWriter};
use super::symbol::CallStackDepth;
use crate::error::ProfileError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_sequence::grammar::Window;
use trodden_sequence::{CompressionMethod, Compressor};
use trodden_wire::stream::Event;

/// Extension of journals.
pub const JOURNAL_EXTENSION: &str = "journal";
/// Maximum memory, in bytes, that a compressor needs for each of its entries ([`Compressor::item_count_in_memory`]).
pub const BYTES_PER_BUILDER_ENTRY: usize = 200;

/// Limits above which windows are closed. They are checked after each frame of events, so the last frame may exceed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBounds {
    /// Maximum number of compressor entries of all open windows of a stream file ([`Compressor::item_count_in_memory`],
    /// [`BYTES_PER_BUILDER_ENTRY`] each). If it is exceeded, the largest windows are closed.
    pub max_entries: usize,
    /// Maximum size of a thread's journal in bytes. If it is exceeded, the thread's window is closed.
    pub max_journal_bytes: u64,
}

impl Default for WindowBounds {
    /// Limits the memory to about 100 MB, and the journal of each thread to 32 MiB.
    fn default() -> WindowBounds {
        WindowBounds { max_entries: 1 << 19, max_journal_bytes: 32 << 20 }
    }
}

pub struct StreamLogBuilder {
    log: StreamLogWriter,
    header: StreamHeader,
    method: CompressionMethod,
    bounds: WindowBounds,
    open: BTreeMap<ThreadKey, OpenWindow>,
    /// State of each thread at the end of its last closed window: the number of the next chunk, the depth of the call stack, and the number
    /// of lost events.
    ended: BTreeMap<ThreadKey, (u64, CallStackDepth, u64)>,
    /// Number of symbols in all closed windows.
    symbols: u64,
}

struct OpenWindow {
    header: LogFrameHeader,
    compressor: Box<dyn Compressor + Send>,
    journal: PathBuf,
    journal_bytes: u64,
}

impl std::fmt::Debug for StreamLogBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("log", &self.log).field("method", &self.method).field("open", &self.open.len()).finish()
    }
}

impl StreamLogBuilder {
    pub fn create(
        path: &Path,
        header: &StreamHeader,
        method: CompressionMethod,
        bounds: WindowBounds,
    ) -> Result<StreamLogBuilder, ProfileError> {
        let log = StreamLogWriter::create(path, header)?;
        let (open, ended) = (BTreeMap::new(), BTreeMap::new());
        Ok(StreamLogBuilder { log, header: header.clone(), method, bounds, open, ended, symbols: 0 })
    }

    pub fn set_bounds(&mut self, bounds: WindowBounds) {
        self.bounds = bounds;
    }

    /// Appends a closed window that another log already contains.
    pub(super) fn append_window(&mut self, header: &LogFrameHeader, packed: &[u8], unpacked: u64) -> Result<(), ProfileError> {
        self.log.append_packed(header, packed, unpacked)?;
        self.symbols += header.events;
        self.ended.insert(header.key, (header.sequence + header.chunks, header.depth, header.lost));
        Ok(())
    }

    /// Returns the number of the thread's first chunk that is not in a closed window.
    pub(super) fn next_chunk(&self, key: ThreadKey) -> u64 {
        self.ended.get(&key).map_or(0, |ended| ended.0)
    }

    /// Appends events to the journal of their thread, so that they survive if the recorder is killed.
    pub fn append_to_journal(&mut self, header: &LogFrameHeader, words: &[u32]) -> Result<(), ProfileError> {
        let window = self.find_or_open_window(header);
        let mut journal = match window.journal_bytes {
            0 => StreamLogWriter::create(&window.journal.clone(), &self.header)?,
            _ => StreamLogWriter::reopen(&window.journal)?,
        };
        let plain: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        journal.append(header, &plain)?;
        let bytes = journal.bytes();
        self.find_or_open_window(header).journal_bytes = bytes;
        Ok(())
    }

    /// Adds events, which must already be in the journal, to the window of their thread. Closes windows that exceed the limits.
    pub fn add_events(&mut self, header: &LogFrameHeader, words: &[u32]) -> Result<(), ProfileError> {
        let bounds = self.bounds;
        if self.open.get(&header.key).is_some_and(|window| header.sequence != window.header.sequence + window.header.chunks) {
            // Chunks are missing between the window and these events, so a new window begins. Readers detect the gap between the two.
            self.close_window(header.key)?;
        }
        let window = self.find_or_open_window(header);
        if window.header.lost != header.lost {
            // Events were lost, so the depths in the following events are relative to an unknown depth.
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
            return self.close_window(header.key);
        }
        while self.entry_count_in_memory() > bounds.max_entries {
            let Some(largest) = self.open.iter().max_by_key(|(_, w)| w.compressor.item_count_in_memory()).map(|(key, _)| *key) else {
                break;
            };
            self.close_window(largest)?;
        }
        Ok(())
    }

    /// Records that a thread wrote `end` chunks in total. If its last window ends before that, the remaining chunks are missing.
    pub(super) fn end_thread(&mut self, key: ThreadKey, end: u64) -> Result<(), ProfileError> {
        self.close_window(key)?;
        let (next, depth, lost) = self.ended.get(&key).copied().unwrap_or((0, CallStackDepth::default(), 0));
        if next < end {
            // An empty window after the missing chunks tells readers that there is a gap.
            let depth = CallStackDepth { is_known: false, ..depth };
            let content = LogFrameContent::Window;
            self.find_or_open_window(&LogFrameHeader { content, key, parent: None, sequence: end, chunks: 0, lost, events: 0, depth });
            self.close_window(key)?;
        }
        Ok(())
    }

    /// Returns the number of compressor entries of all open windows.
    pub fn entry_count_in_memory(&self) -> usize {
        self.open.values().map(|w| w.compressor.item_count_in_memory()).sum()
    }

    pub fn event_count(&self) -> u64 {
        self.symbols + self.open.values().map(|w| w.header.events).sum::<u64>()
    }

    /// Closes all windows and returns the size of the log in bytes.
    pub fn close_all_windows(&mut self) -> Result<u64, ProfileError> {
        let keys: Vec<ThreadKey> = self.open.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.close_window(key))?;
        Ok(self.log.bytes())
    }

    fn find_or_open_window(&mut self, header: &LogFrameHeader) -> &mut OpenWindow {
        let (method, ended, log) = (self.method, &self.ended, self.log.path());
        self.open.entry(header.key).or_insert_with(|| {
            let (next, depth, lost) = ended.get(&header.key).copied().unwrap_or((0, CallStackDepth::default(), 0));
            let is_known = depth.is_known && next == header.sequence && lost == header.lost;
            let depth = CallStackDepth { is_known, ..depth };
            let header = LogFrameHeader { content: LogFrameContent::Window, chunks: 0, events: 0, depth, ..*header };
            OpenWindow { header, compressor: method.compressor(), journal: journal_path(log, header.key), journal_bytes: 0 }
        })
    }

    /// Closes a thread's window: writes it to the log, then removes the thread's journal.
    fn close_window(&mut self, key: ThreadKey) -> Result<(), ProfileError> {
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

/// Finds the journals that a killed recorder left in the folder of a log.
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
