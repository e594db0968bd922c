//! What libraries are given of this process's environment, which they do not read themselves.

use crate::context::context;
use anyhow::{Result, ensure};
use std::env;
use std::path::{Path, PathBuf};
use trodden_driver::cc::CARGO_FOLDER_VARIABLE;
use trodden_driver::rust::ROLE_VARIABLE;
use trodden_profile::store::{self, RUNS_VARIABLE};
use trodden_recording::{Surroundings, TEST_VARIABLE};
use trodden_stored::Folders;

/// The folders, stores and variables of this process.
pub fn surroundings() -> Surroundings {
    // `cargo trodden run` calls us: what it passed to rustc is not the program's business.
    let is_called_by_cargo = env::var_os(ROLE_VARIABLE).is_some();
    Surroundings {
        directory: env::current_dir().unwrap_or_default(),
        temporary: env::temp_dir(),
        units: context().store().ok(),
        withheld: if is_called_by_cargo { vec![ROLE_VARIABLE, CARGO_FOLDER_VARIABLE, "RUSTC_WRAPPER"] } else { Vec::new() },
        test: env::var(TEST_VARIABLE).ok().filter(|name| !name.is_empty()),
    }
}

/// Uses the run store that [`RUNS_VARIABLE`] names, if it does.
///
/// # Errors
/// It is a relative path.
pub fn use_run_store() -> Result<()> {
    if let Some(folder) = env::var_os(RUNS_VARIABLE).filter(|folder| !folder.is_empty()) {
        // Processes that a command starts read it too, in folders of their own.
        ensure!(Path::new(&folder).is_absolute(), "{RUNS_VARIABLE} is {}, a relative path: set it to an absolute one", folder.display());
        store::use_folder(folder.into());
    }
    Ok(())
}

/// The folders that the environment names.
pub fn folders() -> Folders {
    Folders { units: context().store().ok(), temporary: env::temp_dir(), current: env::current_dir().unwrap_or_default() }
}

/// Names folders of sources that have moved since they were compiled, separated by colons.
pub const SOURCES_VARIABLE: &str = "TRODDEN_SOURCES";

/// The folders of [`SOURCES_VARIABLE`].
pub fn source_folders() -> Vec<PathBuf> {
    env::var_os(SOURCES_VARIABLE)
        .map(|list| env::split_paths(&list).filter(|folder| !folder.as_os_str().is_empty()).collect())
        .unwrap_or_default()
}
