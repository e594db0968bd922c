//! Reads folders and variables from the environment for libraries, which must not read the environment themselves.

use crate::context::driver_context;
use crate::debuginfod;
use anyhow::{Result, ensure};
use std::env;
use std::path::PathBuf;
use trodden_driver::rust::{COMPILER_VARIABLES, ROLE_VARIABLE, STORE_VARIABLE};
use trodden_profile::store::{self, RUNS_VARIABLE};
use trodden_recording::{RecordingContext, TEST_VARIABLE};
use trodden_stored::Folders;
use trodden_unit::cache::CACHE_VARIABLE;

/// Returns the folders, stores and variables of this process.
pub fn recording_context() -> RecordingContext {
    // cargo starts this process for `cargo trodden run`. The recorded program must not inherit the variables that are meant for rustc.
    let is_called_by_cargo = env::var_os(ROLE_VARIABLE).is_some();
    RecordingContext {
        directory: env::current_dir().unwrap_or_default(),
        temporary: env::temp_dir(),
        units: driver_context().store().ok(),
        withheld: if is_called_by_cargo { COMPILER_VARIABLES.to_vec() } else { Vec::new() },
        test: env::var(TEST_VARIABLE).ok().filter(|name| !name.is_empty()),
    }
}

/// Returns the folder that an environment variable names, or `None` if the variable is unset or empty. Fails if the path is not a folder,
/// or it is relative and would thus mean a different folder in a child process.
fn folder_of_variable(variable: &str) -> Result<Option<PathBuf>> {
    let Some(folder) = env::var_os(variable).filter(|folder| !folder.is_empty()).map(PathBuf::from) else { return Ok(None) };
    ensure!(folder.is_absolute(), "{variable} is {}, a relative path. Set it to an absolute path", folder.display());
    ensure!(!folder.exists() || folder.is_dir(), "{variable} is {}, which is not a folder. Set it to a folder", folder.display());
    Ok(Some(folder))
}

/// Checks the variables that name the run store and the unit cache, selects the run store, and sets up debuginfod. Fails if a variable does
/// not name a folder.
pub fn read_environment_variables() -> Result<()> {
    folder_of_variable(CACHE_VARIABLE)?;
    folder_of_variable(RUNS_VARIABLE)?.into_iter().for_each(store::set_store_folder);
    // `STORE_VARIABLE` has no effect if `RUNS_VARIABLE` has already selected a run store.
    folder_of_variable(STORE_VARIABLE)?.into_iter().for_each(store::set_store_folder);
    debuginfod::set_up();
    Ok(())
}

/// Returns the folders that the environment selects: unit cache, temporary folder, current folder.
pub fn folders() -> Folders {
    Folders { units: driver_context().store().ok(), temporary: env::temp_dir(), current: env::current_dir().unwrap_or_default() }
}

/// Environment variable with folders, separated by colons, to which sources were moved after they were compiled.
pub const SOURCES_VARIABLE: &str = "TRODDEN_SOURCES";

pub fn source_folders() -> Vec<PathBuf> {
    env::var_os(SOURCES_VARIABLE)
        .map(|list| env::split_paths(&list).filter(|folder| !folder.as_os_str().is_empty()).collect())
        .unwrap_or_default()
}
