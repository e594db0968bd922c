//! Ends local tasks together with the launcher, the process that runs the job, even if the launcher is killed with `kill -9`.
//!
//! The launcher holds a lock on a file (flock(2)) as long as it lives. A task that should end with the launcher waits for the lock in a
//! thread. When the thread gets the lock, the launcher is gone, and the thread kills its process group, which includes all programs that
//! the task started and that did not leave the group.

use crate::{LaunchError, LaunchJob};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Environment variable with the path of the lock file. It is only set for tasks that run on the launcher's machine.
pub const ALIVE_VARIABLE: &str = "LAUNCH_ALIVE";

pub(crate) struct Alive {
    path: PathBuf,
    _locked: File,
}

impl Alive {
    pub(crate) fn hold_lock(job: &LaunchJob) -> Result<Alive, LaunchError> {
        let path = job.folder.join("alive");
        let failed = |source| LaunchError::File { path: path.clone(), source };
        let file = File::create(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(Alive { path, _locked: file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes the calling process and its group end when its launcher is gone. `launcher` is the path from [`ALIVE_VARIABLE`].
pub fn end_with_launcher(launcher: &Path) {
    // If the file no longer exists, the job has ended.
    let Ok(file) = File::open(launcher) else { return };
    std::thread::spawn(move || {
        if file.lock_shared().is_ok() {
            let _ = killpg(getpgrp(), Signal::SIGKILL);
        }
    });
}
