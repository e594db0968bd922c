//! What libraries are given of this process's environment, which they do not read themselves.

use crate::context::context;
use anyhow::{Result, ensure};
use std::env;
use std::path::PathBuf;
use trodden_driver::cc::CARGO_FOLDER_VARIABLE;
use trodden_driver::rust::ROLE_VARIABLE;
use trodden_profile::store::{self, RUNS_VARIABLE};
use trodden_recording::{Surroundings, TEST_VARIABLE};
use trodden_stored::Folders;
use trodden_unit::cache::CACHE_VARIABLE;

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

/// The folder that a variable names. Processes that a command starts read it too, in folders of their own.
///
/// # Errors
/// Its path is relative, or something else than a folder has it.
fn folder_of_variable(variable: &str) -> Result<Option<PathBuf>> {
    let Some(folder) = env::var_os(variable).filter(|folder| !folder.is_empty()).map(PathBuf::from) else { return Ok(None) };
    ensure!(folder.is_absolute(), "{variable} is {}, a relative path: set it to an absolute one", folder.display());
    ensure!(!folder.exists() || folder.is_dir(), "{variable} is {}, which is no folder: set it to one", folder.display());
    Ok(Some(folder))
}

/// Reads the variables that say where runs and units are kept.
///
/// # Errors
/// One does not name a folder.
pub fn read_variables() -> Result<()> {
    folder_of_variable(CACHE_VARIABLE)?;
    folder_of_variable(RUNS_VARIABLE)?.into_iter().for_each(store::use_folder);
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
