//! Drains stream files to logs while programs write the stream files.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trodden_profile::stream::{LiveStream, StreamDrain, StreamDrainTotals, StreamLog, WindowBounds, is_stream_file, write_raw};
use trodden_sequence::CompressionMethod;
use trodden_stored::place::{LOG_EXTENSION, STREAM_EXTENSION, files_with_extension};
use trodden_wire::LostThreads;

/// Pause between polls while chunks are arriving.
pub const MIN_PAUSE: Duration = Duration::from_micros(500);
/// Maximum pause between polls while no chunks arrive.
const MAX_PAUSE: Duration = Duration::from_millis(20);
const STREAM_SEARCH_INTERVAL: Duration = Duration::from_millis(20);

/// Returns the pause that follows a pause in which no chunk arrived.
pub fn next_longer_pause(pause: Duration) -> Duration {
    (2 * pause).min(MAX_PAUSE)
}

/// Drains the stream files in a folder. Files are identified by inode number, because they are moved when their process ends.
pub struct StreamRecorder<'a> {
    folder: &'a Path,
    method: CompressionMethod,
    drains: BTreeMap<u64, (StreamDrain, PathBuf)>,
    last_search: Option<Instant>,
}

impl<'a> StreamRecorder<'a> {
    /// Creates a recorder for a folder's stream files.
    pub fn new(folder: &'a Path, method: CompressionMethod) -> Self {
        StreamRecorder { folder, method, drains: BTreeMap::new(), last_search: None }
    }

    /// Returns the folder that programs write to.
    pub fn folder(&self) -> &'a Path {
        self.folder
    }

    /// Drains all full chunks and returns how many there were.
    pub fn drain_full_chunks(&mut self) -> Result<usize> {
        if self.last_search.is_none_or(|last_search| last_search.elapsed() >= STREAM_SEARCH_INTERVAL) {
            self.last_search = Some(Instant::now());
            self.start_new_drains(self.folder)?;
        }
        self.divide_memory_among_drains();
        let mut drained = 0;
        for (drain, _) in self.drains.values_mut() {
            drained += drain.drain_full_chunks()?;
        }
        Ok(drained)
    }

    /// Finishes the logs of all stream files in a folder, moves each log beside its stream file, and removes the stream file. The programs
    /// must have ended. Stream files of programs that only counted become raw files.
    pub fn finish_streams(&mut self, folder: &Path) -> Result<StreamDrainTotals> {
        self.start_new_drains(folder)?;
        let mut all = StreamDrainTotals::default();
        for file in files_with_extension(folder, STREAM_EXTENSION)? {
            let found = inode_of(&file).and_then(|inode| self.drains.remove(&inode));
            let Some((drain, log)) = found else {
                if !is_stream_file(&file) {
                    // Such a file is from a program that counts instead of writing a stream.
                    fs::rename(&file, file.with_extension("raw")).with_context(|| format!("cannot rename {}", file.display()))?;
                }
                continue;
            };
            let drained = drain.finish_drain()?;
            all.events += drained.events;
            all.chunks += drained.chunks;
            all.invalid_words += drained.invalid_words;
            all.bytes += drained.bytes;
            all.lost = all.lost.merge(drained.lost);
            let target = file.with_extension(LOG_EXTENSION);
            if log != target {
                fs::rename(&log, &target).with_context(|| format!("cannot rename {}", log.display()))?;
            }
            write_lost_threads(&target, drained.lost)?;
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        Ok(all)
    }

    /// Divides the bound on memory equally among the files that are being compressed.
    fn divide_memory_among_drains(&mut self) {
        let total = WindowBounds::default();
        let active = self.drains.values().filter(|(d, _)| d.has_open_windows()).count().max(1);
        let bounds = WindowBounds { max_entries: total.max_entries / active, ..total };
        self.drains.values_mut().for_each(|(drain, _)| drain.set_bounds(bounds));
    }

    fn start_new_drains(&mut self, folder: &Path) -> Result<()> {
        for file in files_with_extension(folder, STREAM_EXTENSION)? {
            // Files that are not initialised yet or were just moved are found by a later search.
            let Some(inode) = inode_of(&file).filter(|inode| !self.drains.contains_key(inode)) else { continue };
            if is_stream_file(&file) && LiveStream::open(&file, false).is_ok() {
                let log = self.unused_log_path(&file);
                let Ok(drain) = StreamDrain::begin(&file, &log, self.method) else {
                    // A file that was moved is found in its new folder by a later search.
                    anyhow::ensure!(!file.exists(), "cannot record the stream file {} in {}", file.display(), log.display());
                    let _ = fs::remove_file(&log);
                    continue;
                };
                self.drains.insert(inode, (drain, log));
            }
        }
        Ok(())
    }

    /// Returns an unused path for a log. A process ID may be reused before the previous process's log is finished.
    fn unused_log_path(&self, file: &Path) -> PathBuf {
        let names =
            (0..).map(|n| if n == 0 { file.with_extension(LOG_EXTENSION) } else { file.with_extension(format!("{n}.{LOG_EXTENSION}")) });
        names.into_iter().find(|log| !log.exists()).unwrap_or_else(|| file.with_extension(LOG_EXTENSION))
    }
}

/// Writes the number of threads that could not write any event to a raw file beside the log, because the log describes only threads with
/// events.
pub fn write_lost_threads(log: &Path, lost: LostThreads) -> Result<()> {
    if lost.threads() > 0 {
        write_raw(&log.with_extension("lost.raw"), StreamLog::open(log)?.header(), &[], lost)?;
    }
    Ok(())
}

/// Returns the inode number of a file, or `None` if the file no longer exists.
fn inode_of(file: &Path) -> Option<u64> {
    file.metadata().ok().map(|data| data.ino())
}
