//! The environment of a recording, passed explicitly because libraries read no environment.

use anyhow::{Result, ensure};
use std::path::PathBuf;
use trodden_launch::temporary::{TemporaryFolder, create_folder_in};
use trodden_profile::RunStore;
use trodden_unit::UnitCache;

/// Folders, stores and variables of the recording process.
#[derive(Clone, Debug, Default)]
pub struct RecordingContext {
    /// The working folder, whose run store receives the runs; empty if the folder was deleted.
    pub directory: PathBuf,
    /// The folder for temporary folders.
    pub temporary: PathBuf,
    /// The cache with unit maps that images do not contain.
    pub units: Option<UnitCache>,
    /// Environment variables that are not passed on to programs.
    pub withheld: Vec<&'static str>,
    /// The test that the run belongs to, from [`crate::TEST_VARIABLE`].
    pub test: Option<String>,
}

impl RecordingContext {
    /// The run store of the working folder, created if necessary.
    ///
    /// # Errors
    /// The working folder was deleted, or the store cannot be created or written.
    pub fn run_store(&self) -> Result<RunStore> {
        ensure!(!self.directory.as_os_str().is_empty(), "the working folder was deleted. Change to an existing folder");
        Ok(RunStore::create(&self.directory)?)
    }

    /// Creates a temporary folder that only its owner can read.
    pub fn temporary_folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        Ok(create_folder_in(&self.temporary, prefix)?)
    }
}
