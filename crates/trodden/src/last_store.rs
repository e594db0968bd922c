//! Where the last run was stored, so that a message about a missing run store can say so.

use crate::context::context;
use crate::notes::note;
use anyhow::Result;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_console::program;
use trodden_profile::ProfileError;
use trodden_profile::store::{RUNS_VARIABLE, locate};

/// File of the unit cache that names the run store.
const FILE: &str = "last-run-store";

/// Remembers the run store of the current folder.
pub fn remember() {
    let (Some(folder), Ok(cache)) = (locate(Path::new(".")), context().store()) else { return };
    // It only helps messages: a cache that cannot be written is not worth another one.
    if fs::read(cache.root().join(FILE)).is_ok_and(|known| known == folder.as_os_str().as_bytes()) {
        return;
    }
    let _ = fs::create_dir_all(cache.root()).and_then(|()| fs::write(cache.root().join(FILE), folder.as_os_str().as_bytes()));
}

/// Returns the run store of the last run, if it still exists.
pub fn last() -> Option<PathBuf> {
    let name = fs::read(context().store().ok()?.root().join(FILE)).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(name))).filter(|folder| folder.is_dir())
}

/// Reports what a command could not do, and where the last run is if it found no run store.
pub fn end(done: Result<ExitCode>) -> ExitCode {
    if done.as_ref().is_err_and(|error| matches!(error.downcast_ref(), Some(ProfileError::NoStore { .. }))) {
        suggest();
    }
    program::end(done)
}

/// Says where the last run is.
fn suggest() {
    if let Some(folder) = last() {
        note(format_args!(
            "the last run was stored in {}: change to that project, or set {RUNS_VARIABLE} to this folder",
            folder.display()
        ));
    }
}
