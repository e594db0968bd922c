//! The environment of a recording. It is passed as a value because libraries must not read the environment.

use anyhow::{Result, ensure};
use std::path::PathBuf;
use trodden_launch::temporary::{TemporaryFolder, create_folder_in};
use trodden_profile::RunStore;
use trodden_unit::UnitCache;

/// Folders, stores and variables that recordings use.
#[derive(Clone, Debug, Default)]
pub struct RecordingContext {
    /// The working folder, whose run store gets the runs. Empty if the folder was deleted.
    pub directory: PathBuf,
    /// The folder in which temporary folders are created.
    pub temporary: PathBuf,
    /// The cache of compilation units, for unit maps that images do not contain.
    pub units: Option<UnitCache>,
    /// Environment variables that programs must not see.
    pub withheld: Vec<&'static str>,
    /// The test to which the run belongs, from [`crate::TEST_VARIABLE`].
    pub test: Option<String>,
}

impl RecordingContext {
    /// Opens the working folder's run store and creates it if necessary. Fails if the working folder was deleted, or the run store cannot
    /// be created or written.
    pub fn run_store(&self) -> Result<RunStore> {
        ensure!(!self.directory.as_os_str().is_empty(), "the working folder was deleted. Change to an existing folder");
        Ok(RunStore::create(&self.directory)?)
    }

    /// Creates a temporary folder that only its owner can access.
    pub fn temporary_folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        Ok(create_folder_in(&self.temporary, prefix)?)
    }
}
