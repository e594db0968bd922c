//! Remembers the last used run store, for messages about a missing run store.

use crate::context::driver_context;
use crate::notes::note;
use anyhow::Result;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_console::program;
use trodden_profile::ProfileError;
use trodden_profile::store::{RUNS_VARIABLE, locate};

/// Name of a file in the unit cache. It contains the path of the last used run store.
const LAST_STORE_FILE: &str = "last-run-store";

/// Remembers the run store of the current folder, if it has one.
pub fn remember_current_store() {
    let (Some(folder), Ok(cache)) = (locate(Path::new(".")), driver_context().store()) else { return };
    // The location only improves messages, so failures are ignored.
    if fs::read(cache.root().join(LAST_STORE_FILE)).is_ok_and(|known| known == folder.as_os_str().as_bytes()) {
        return;
    }
    let _ = fs::create_dir_all(cache.root()).and_then(|()| fs::write(cache.root().join(LAST_STORE_FILE), folder.as_os_str().as_bytes()));
}

/// Returns the last used run store if it still exists.
pub fn find_last_store() -> Option<PathBuf> {
    let name = fs::read(driver_context().store().ok()?.root().join(LAST_STORE_FILE)).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(name))).filter(|folder| folder.is_dir())
}

/// Prints a command's error. If the command found no run store, also prints where the last used one is.
pub fn print_error_and_suggest_store(done: Result<ExitCode>) -> ExitCode {
    if done.as_ref().is_err_and(|error| matches!(error.downcast_ref(), Some(ProfileError::NoStore { .. }))) {
        suggest_last_store();
    }
    program::print_error_and_exit_code(done)
}

fn suggest_last_store() {
    if let Some(folder) = find_last_store() {
        note(format_args!(
            "the last run was stored in {}. Change to that project, or set {RUNS_VARIABLE} to this folder",
            folder.display()
        ));
    }
}
