//! Takes full chunks of the stream files of a folder while programs write them, and makes logs of them.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trodden_profile::stream::{Drain, Drained, LiveStream, StreamLog, WindowBounds, is_stream_file, write_raw};
use trodden_sequence::CompressionMethod;
use trodden_stored::place::{LOG, STREAM, with_extension};
use trodden_wire::LostThreads;

/// How long it is waited for full chunks, where there were none.
pub const PAUSE: Duration = Duration::from_micros(500);
/// Longest wait, when nothing happens.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How often new stream files are looked for.
const NEW_FILES: Duration = Duration::from_millis(20);

/// The wait after one in which nothing came.
pub fn longer(pause: Duration) -> Duration {
    (2 * pause).min(LONGEST_PAUSE)
}

/// Drains the stream files of a folder. Files are known by their numbers in the file system: who follows processes moves the files of
/// those that have ended.
pub struct Recorder<'a> {
    folder: &'a Path,
    method: CompressionMethod,
    drains: BTreeMap<u64, (Drain, PathBuf)>,
    looked: Option<Instant>,
}

impl<'a> Recorder<'a> {
    /// Nothing is drained yet.
    pub fn new(folder: &'a Path, method: CompressionMethod) -> Self {
        Recorder { folder, method, drains: BTreeMap::new(), looked: None }
    }

    /// Where programs write.
    pub fn folder(&self) -> &'a Path {
        self.folder
    }

    /// Takes chunks that are full now; gives their number.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn poll(&mut self) -> Result<usize> {
        if self.looked.is_none_or(|looked| looked.elapsed() >= NEW_FILES) {
            self.looked = Some(Instant::now());
            self.begin_all(self.folder)?;
        }
        self.divide_memory();
        let mut taken = 0;
        for (drain, _) in self.drains.values_mut() {
            taken += drain.poll()?;
        }
        Ok(taken)
    }

    /// Makes logs, in their place, of the files of a folder, whose programs have ended; files of programs that counted become raw files.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn finish(&mut self, folder: &Path) -> Result<Drained> {
        self.begin_all(folder)?;
        let mut all = Drained::default();
        for file in with_extension(folder, STREAM)? {
            let found = number(&file).and_then(|number| self.drains.remove(&number));
            let Some((drain, log)) = found else {
                if !is_stream_file(&file) {
                    // Of programs that count.
                    fs::rename(&file, file.with_extension("raw")).with_context(|| format!("cannot rename {}", file.display()))?;
                }
                continue;
            };
            let drained = drain.finish()?;
            all.events += drained.events;
            all.chunks += drained.chunks;
            all.damaged += drained.damaged;
            all.bytes += drained.bytes;
            all.lost = all.lost.plus(drained.lost);
            let place = file.with_extension(LOG);
            if log != place {
                fs::rename(&log, &place).with_context(|| format!("cannot rename {}", log.display()))?;
            }
            note_lost(&place, drained.lost)?;
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        Ok(all)
    }

    /// Gives the files with open windows equal parts of what all may hold.
    fn divide_memory(&mut self) {
        let whole = WindowBounds::default();
        let active = self.drains.values().filter(|(d, _)| d.is_active()).count().max(1);
        let bounds = WindowBounds { held: whole.held / active, ..whole };
        self.drains.values_mut().for_each(|(drain, _)| drain.set_bounds(bounds));
    }

    /// Begins to drain files that are new.
    fn begin_all(&mut self, folder: &Path) -> Result<()> {
        for file in with_extension(folder, STREAM)? {
            // It may be moved in this moment; one that is not set up yet is looked at again.
            let Some(number) = number(&file).filter(|number| !self.drains.contains_key(number)) else { continue };
            if is_stream_file(&file) && LiveStream::open(&file, false).is_ok() {
                let log = self.new_log(&file);
                let Ok(drain) = Drain::begin(&file, &log, self.method) else {
                    // Moved: it is found where it is then.
                    anyhow::ensure!(!file.exists(), "cannot record {} into {}", file.display(), log.display());
                    let _ = fs::remove_file(&log);
                    continue;
                };
                self.drains.insert(number, (drain, log));
            }
        }
        Ok(())
    }

    /// A name that no log has: a process's number may be given again while the log of its first bearer is not finished.
    fn new_log(&self, file: &Path) -> PathBuf {
        let names = (0..).map(|n| if n == 0 { file.with_extension(LOG) } else { file.with_extension(format!("{n}.{LOG}")) });
        names.into_iter().find(|log| !log.exists()).unwrap_or_else(|| file.with_extension(LOG))
    }
}

/// Lets the profile of a log say that threads wrote nothing: by a raw file beside it, since a log has room for those that wrote alone.
///
/// # Errors
/// The log cannot be read, or the file not be written.
pub fn note_lost(log: &Path, lost: LostThreads) -> Result<()> {
    if lost.threads() > 0 {
        write_raw(&log.with_extension("lost.raw"), StreamLog::open(log)?.head(), &[], lost)?;
    }
    Ok(())
}

/// The file's number; none if it is not there any more.
fn number(file: &Path) -> Option<u64> {
    file.metadata().ok().map(|data| data.ino())
}
