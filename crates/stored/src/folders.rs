//! The folders that a program's environment names, as values: no library reads the environment.

use anyhow::{Context, Result};
use std::path::PathBuf;
use trodden_profile::temporary::TemporaryFolder;
use trodden_unit::UnitCache;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::InputFolder;

/// The folders that a program's environment names.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The unit cache; `None` if the environment names none, and no home folder.
    pub units: Option<UnitCache>,
    /// Where temporary files and folders are created.
    pub temporary: PathBuf,
    /// The current folder, which relative names of sources are resolved against.
    pub current: PathBuf,
}

impl Folders {
    /// The unit cache.
    ///
    /// # Errors
    /// The environment names none.
    pub fn units(&self) -> Result<&UnitCache> {
        self.units.as_ref().with_context(|| format!("no folder for the unit cache: set {CACHE_VARIABLE} (or HOME)"))
    }

    /// The folder of files that builds read.
    ///
    /// # Errors
    /// There is no unit cache.
    pub fn inputs(&self) -> Result<InputFolder> {
        Ok(self.units()?.inputs())
    }

    /// Creates a temporary folder that only its user can read, removed when it is dropped.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn temporary_folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        let base = &self.temporary;
        TemporaryFolder::create_in(base, prefix, 0o700)
            .with_context(|| format!("cannot create a temporary folder in {}: set TMPDIR to a folder that can be written", base.display()))
    }

    /// The current folder as text.
    pub fn current_text(&self) -> String {
        self.current.display().to_string()
    }
}
