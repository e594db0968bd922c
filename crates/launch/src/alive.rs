//! Kills local tasks when the launcher (the process that runs the job) dies, even if it dies by `kill -9`.
//!
//! The launcher holds a lock on a file (flock(2)) for its lifetime. A task that must not outlive the launcher waits for the lock in a
//! thread. When the thread gets the lock, the launcher is gone, and the thread kills the task's process group: all programs that the task
//! started, except those that left the group.

use crate::{LaunchError, LaunchJob};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Kills local tasks when the launcher, the process that runs the job, dies, even if it dies by `kill -9`.
///
/// The launcher holds a lock on a file (flock(2)) for its lifetime. A task that must not outlive the launcher waits for this lock in a
/// thread. When the thread gets the lock, the launcher is gone, and the thread kills the task's process group, which contains all programs
/// that the task started, except those that left the group.
pub const LAUNCHER_ALIVE_VARIABLE: &str = "LAUNCH_ALIVE";

pub(crate) struct AliveLock {
    lock_file: PathBuf,
    _locked: File,
}

impl AliveLock {
    pub(crate) fn hold_alive_lock(job: &LaunchJob) -> Result<AliveLock, LaunchError> {
        let lock_file = job.folder.join("alive");
        let failed = |source| LaunchError::File { path: lock_file.clone(), source };
        let file = File::create(&lock_file).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(AliveLock { lock_file, _locked: file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.lock_file
    }
}

/// Kills this process and its process group as soon as the launcher dies. `lock_file` is the value of [`LAUNCHER_ALIVE_VARIABLE`].
pub fn end_with_launcher(lock_file: &Path) {
    // If there is no lock file, the job has already ended.
    let Ok(file) = File::open(lock_file) else { return };
    std::thread::spawn(move || {
        if file.lock_shared().is_ok() {
            let _ = killpg(getpgrp(), Signal::SIGKILL);
        }
    });
}
