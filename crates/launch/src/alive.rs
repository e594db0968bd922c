//! Tasks of this machine end with the process that runs the job, however that ends: `kill -9` leaves it no time to end them.
//!
//! The launcher holds the lock of a file (flock(2)) as long as it lives. A task's command that wants to end with it
//! waits for that lock in a thread: it gets it when the launcher is gone, and then ends its process group, in which are
//! all programs that the task has started and that did not leave it.

use crate::{Error, LaunchJob};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Variable by which a task finds the file; only of tasks that run where their launcher does.
pub const ALIVE_VARIABLE: &str = "LAUNCH_ALIVE";

/// The lock of a launcher, held until it is dropped.
pub(crate) struct Alive {
    path: PathBuf,
    _locked: File,
}

impl Alive {
    /// Takes the lock of a job's file, which is made.
    pub(crate) fn from_job(job: &LaunchJob) -> Result<Alive, Error> {
        let path = job.folder.join("alive");
        let failed = |source| Error::File { path: path.clone(), source };
        let file = File::create(&path).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(Alive { path, _locked: file })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// From now on, the calling process and its group end when the launcher that started it is gone, whose file the caller finds by
/// [`ALIVE_VARIABLE`].
pub fn end_with_launcher(launcher: &Path) {
    // A file that is not there any more belongs to a job that has ended.
    let Ok(file) = File::open(launcher) else { return };
    std::thread::spawn(move || {
        if file.lock_shared().is_ok() {
            let _ = killpg(getpgrp(), Signal::SIGKILL);
        }
    });
}
