//! What a recording is given of the process that asks for it: libraries read no environment.

use anyhow::{Result, ensure};
use std::path::PathBuf;
use trodden_launch::temporary::{TemporaryFolder, folder_in};
use trodden_profile::RunStore;
use trodden_unit::UnitCache;

/// Folders, stores and variables of the process that records.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The working folder, whose run store gets the runs; empty if it was deleted.
    pub directory: PathBuf,
    /// Where temporary folders are made.
    pub temporary: PathBuf,
    /// Maps of units that images do not have themselves.
    pub units: Option<UnitCache>,
    /// Variables of the process's own that programs do not get.
    pub withheld: Vec<&'static str>,
    /// The test whose run it is, if the caller says so by [`crate::TEST_VARIABLE`].
    pub test: Option<String>,
}

impl Surroundings {
    /// The run store of the working folder, which is made if there is none.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub fn run_store(&self) -> Result<RunStore> {
        ensure!(!self.directory.as_os_str().is_empty(), "the working folder was deleted: change to one that exists");
        Ok(RunStore::create(&self.directory)?)
    }

    /// A temporary folder, which only its user can read.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn temporary_folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        Ok(folder_in(&self.temporary, prefix)?)
    }
}
