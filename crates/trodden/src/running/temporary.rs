//! Temporary folders that are removed however the command ends, except by `kill -9`: also on errors and signals.

use super::ignored_signals;
use anyhow::{Context, Result};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use trodden_profile::private;

/// Folders that are to be removed.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Whether signals have another meaning for this command than to end it.
static SIGNALS_ARE_TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes a signal that would end the command; returns whether it does.
static TAKER: OnceLock<fn(i32) -> bool> = OnceLock::new();

/// How often to try to remove a folder that others may still write to, and how long to wait in between.
const MAX_REMOVALS: u32 = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

/// A folder that only its user can read; removed with this value.
#[derive(Debug)]
pub struct TemporaryFolder(TempDir);

/// Creates a folder among temporary files.
///
/// # Errors
/// It cannot be created.
pub fn folder(prefix: &str) -> Result<TemporaryFolder> {
    folder_in(&std::env::temp_dir(), prefix)
}

/// Creates a folder in another one.
///
/// # Errors
/// It cannot be created.
pub fn folder_in(base: &Path, prefix: &str) -> Result<TemporaryFolder> {
    remove_on_signals();
    // None is created while all are being removed.
    let mut folders = all();
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).permissions(Permissions::from_mode(0o700));
    let folder = builder
        .tempdir_in(base)
        .with_context(|| format!("cannot create a temporary folder in {}: set TMPDIR to a folder that can be written", base.display()))?;
    folders.insert(folder.path().to_owned());
    Ok(TemporaryFolder(folder))
}

/// Creates a folder in another one, for all users who may use that one.
///
/// # Errors
/// It cannot be created.
pub fn folder_of_users(base: &Path, prefix: &str) -> Result<TemporaryFolder> {
    remove_on_signals();
    let mut folders = all();
    let folder = private::temporary_folder_in(base, prefix).with_context(|| format!("cannot write to {}", base.display()))?;
    folders.insert(folder.path().to_owned());
    Ok(TemporaryFolder(folder))
}

impl TemporaryFolder {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Renames it: it stays.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn keep_as(mut self, path: &Path) -> std::io::Result<()> {
        std::fs::rename(self.path(), path)?;
        self.0.disable_cleanup(true);
        Ok(())
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What is being removed by a signal's thread is removed once.
        let mut folders = all();
        folders.remove(self.0.path());
        let _ = std::fs::remove_dir_all(self.0.path());
    }
}

/// A folder that is made elsewhere, and removed when a signal ends the command.
pub fn remove_with_command(folder: &Path) {
    remove_on_signals();
    all().insert(folder.to_owned());
}

/// A folder that stays.
pub fn forget(folder: &Path) {
    all().remove(folder);
}

/// From now on signals do not end this command by themselves: it hands them on, or has an end of its own for them.
pub fn take_signals() {
    SIGNALS_ARE_TAKEN.store(true, Ordering::SeqCst);
}

/// From now on signals that would end the command are offered to a function first, which returns whether it takes them.
pub fn offer_signals(taker: fn(i32) -> bool) {
    let is_first = TAKER.set(taker).is_ok();
    assert!(is_first, "a command has one taker of signals");
}

/// Whether [`take_signals`] was called.
pub fn signals_are_taken() -> bool {
    SIGNALS_ARE_TAKEN.load(Ordering::SeqCst)
}

/// Removes all folders. None can be created as long as the result lives.
pub fn remove_all() -> impl Sized {
    let folders = all();
    for folder in folders.iter() {
        for _ in 0..MAX_REMOVALS {
            // A child of ours may be writing to it.
            match std::fs::remove_dir_all(folder) {
                Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => std::thread::sleep(REMOVAL_PAUSE),
                _ => break,
            }
        }
    }
    folders
}

fn all() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to look out for signals, once; those that are ignored stay ignored.
pub fn remove_on_signals() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let ignored = ignored_signals();
        let ends = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !ignored.contains(signal));
        // Where that cannot be, signals end the command as ever.
        let Ok(mut signals) = Signals::new(ends) else { return };
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if signals_are_taken() {
                    continue;
                }
                if !TAKER.get().is_some_and(|taker| taker(signal)) {
                    let _removed = remove_all();
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        });
    });
}
