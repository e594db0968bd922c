//! Location of the last used run store, for messages about a missing one.

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

/// File in the unit cache that contains the path of the run store.
const FILE: &str = "last-run-store";

/// Remembers the run store of the current folder.
pub fn remember() {
    let (Some(folder), Ok(cache)) = (locate(Path::new(".")), context().store()) else { return };
    // This only improves messages, so a failure is ignored.
    if fs::read(cache.root().join(FILE)).is_ok_and(|known| known == folder.as_os_str().as_bytes()) {
        return;
    }
    let _ = fs::create_dir_all(cache.root()).and_then(|()| fs::write(cache.root().join(FILE), folder.as_os_str().as_bytes()));
}

/// Returns the last used run store, if it still exists.
pub fn last() -> Option<PathBuf> {
    let name = fs::read(context().store().ok()?.root().join(FILE)).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(name))).filter(|folder| folder.is_dir())
}

/// Reports a command's error, with the location of the last run if the command found no run store.
pub fn end(done: Result<ExitCode>) -> ExitCode {
    if done.as_ref().is_err_and(|error| matches!(error.downcast_ref(), Some(ProfileError::NoStore { .. }))) {
        suggest_last_store();
    }
    program::finish(done)
}

/// Prints the location of the last used run store.
fn suggest_last_store() {
    if let Some(folder) = last() {
        note(format_args!(
            "the last run was stored in {}. Change to that project, or set {RUNS_VARIABLE} to this folder",
            folder.display()
        ));
    }
}
