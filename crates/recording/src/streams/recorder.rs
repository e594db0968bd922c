//! Draining of stream files into logs while programs write them.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trodden_profile::stream::{Drain, DrainTotals, LiveStream, StreamLog, WindowBounds, is_stream_file, write_raw};
use trodden_sequence::CompressionMethod;
use trodden_stored::place::{LOG, STREAM, files_with_extension};
use trodden_wire::LostThreads;

/// Pause between polls while chunks arrive.
pub const MIN_PAUSE: Duration = Duration::from_micros(500);
/// Longest pause between polls when no chunks arrive.
const MAX_PAUSE: Duration = Duration::from_millis(20);
const SEARCH_INTERVAL: Duration = Duration::from_millis(20);

/// The next pause after one in which no chunk arrived.
pub fn longer_pause(pause: Duration) -> Duration {
    (2 * pause).min(MAX_PAUSE)
}

/// Drains the stream files of a folder. Files are identified by inode number, because files of ended processes are moved by the code that
/// follows processes.
pub struct Recorder<'a> {
    folder: &'a Path,
    method: CompressionMethod,
    drains: BTreeMap<u64, (Drain, PathBuf)>,
    last_search: Option<Instant>,
}

impl<'a> Recorder<'a> {
    /// Creates a recorder that drains nothing yet.
    pub fn new(folder: &'a Path, method: CompressionMethod) -> Self {
        Recorder { folder, method, drains: BTreeMap::new(), last_search: None }
    }

    /// The folder that programs write to.
    pub fn folder(&self) -> &'a Path {
        self.folder
    }

    /// Drains the chunks that are full now, and returns their number.
    pub fn poll(&mut self) -> Result<usize> {
        if self.last_search.is_none_or(|last_search| last_search.elapsed() >= SEARCH_INTERVAL) {
            self.last_search = Some(Instant::now());
            self.start_new_drains(self.folder)?;
        }
        self.divide_memory();
        let mut taken = 0;
        for (drain, _) in self.drains.values_mut() {
            taken += drain.poll()?;
        }
        Ok(taken)
    }

    /// Finishes the logs of the stream files in a folder, next to them. Their programs must have ended. Files of programs that only counted
    /// become raw files.
    pub fn finish(&mut self, folder: &Path) -> Result<DrainTotals> {
        self.start_new_drains(folder)?;
        let mut all = DrainTotals::default();
        for file in files_with_extension(folder, STREAM)? {
            let found = number(&file).and_then(|number| self.drains.remove(&number));
            let Some((drain, log)) = found else {
                if !is_stream_file(&file) {
                    // Files of programs that only counted.
                    fs::rename(&file, file.with_extension("raw")).with_context(|| format!("cannot rename {}", file.display()))?;
                }
                continue;
            };
            let drained = drain.finish()?;
            all.events += drained.events;
            all.chunks += drained.chunks;
            all.invalid_words += drained.invalid_words;
            all.bytes += drained.bytes;
            all.lost = all.lost.merge(drained.lost);
            let place = file.with_extension(LOG);
            if log != place {
                fs::rename(&log, &place).with_context(|| format!("cannot rename {}", log.display()))?;
            }
            note_lost(&place, drained.lost)?;
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        Ok(all)
    }

    /// Divides the memory bound equally among files with open windows.
    fn divide_memory(&mut self) {
        let whole = WindowBounds::default();
        let active = self.drains.values().filter(|(d, _)| d.is_active()).count().max(1);
        let bounds = WindowBounds { held: whole.held / active, ..whole };
        self.drains.values_mut().for_each(|(drain, _)| drain.set_bounds(bounds));
    }

    fn start_new_drains(&mut self, folder: &Path) -> Result<()> {
        for file in files_with_extension(folder, STREAM)? {
            // The file may just be moved, or not be initialised yet; then it is looked at again.
            let Some(number) = number(&file).filter(|number| !self.drains.contains_key(number)) else { continue };
            if is_stream_file(&file) && LiveStream::open(&file, false).is_ok() {
                let log = self.new_log(&file);
                let Ok(drain) = Drain::begin(&file, &log, self.method) else {
                    // If it was moved, it will be found in its new place.
                    anyhow::ensure!(!file.exists(), "cannot record {} into {}", file.display(), log.display());
                    let _ = fs::remove_file(&log);
                    continue;
                };
                self.drains.insert(number, (drain, log));
            }
        }
        Ok(())
    }

    /// An unused name for a log. A process ID may be reused before the log of its previous user is finished.
    fn new_log(&self, file: &Path) -> PathBuf {
        let names = (0..).map(|n| if n == 0 { file.with_extension(LOG) } else { file.with_extension(format!("{n}.{LOG}")) });
        names.into_iter().find(|log| !log.exists()).unwrap_or_else(|| file.with_extension(LOG))
    }
}

/// Records threads that wrote nothing in a raw file next to the log, which has room only for threads that wrote something.
pub fn note_lost(log: &Path, lost: LostThreads) -> Result<()> {
    if lost.threads() > 0 {
        write_raw(&log.with_extension("lost.raw"), StreamLog::open(log)?.head(), &[], lost)?;
    }
    Ok(())
}

/// The inode number of a file; `None` if the file no longer exists.
fn number(file: &Path) -> Option<u64> {
    file.metadata().ok().map(|data| data.ino())
}
