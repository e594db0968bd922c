//! The folders that the environment of a program names, passed as values: libraries do not read the environment.

use anyhow::{Context, Result};
use std::path::PathBuf;
use trodden_profile::temporary::TemporaryFolder;
use trodden_unit::UnitCache;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::InputFolder;

/// Folders named by the environment.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The unit cache; `None` if the environment names neither it nor a home folder.
    pub units: Option<UnitCache>,
    /// Folder for temporary files and folders.
    pub temporary: PathBuf,
    /// The current folder, against which relative source names are resolved.
    pub current: PathBuf,
}

impl Folders {
    /// The unit cache.
    ///
    /// # Errors
    /// The environment names no unit cache.
    pub fn units(&self) -> Result<&UnitCache> {
        self.units.as_ref().with_context(|| format!("no folder for the unit cache: set {CACHE_VARIABLE} (or HOME)"))
    }

    /// The folder of files that builds read, in the unit cache.
    ///
    /// # Errors
    /// The environment names no unit cache.
    pub fn inputs(&self) -> Result<InputFolder> {
        Ok(self.units()?.inputs())
    }

    /// Creates a temporary folder that only the user can access. It is removed on drop.
    pub fn temporary_folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        let base = &self.temporary;
        TemporaryFolder::create_in(base, prefix, 0o700)
            .with_context(|| format!("cannot create a temporary folder in {}: set TMPDIR to a writable folder", base.display()))
    }

    /// The current folder as text.
    pub fn current_text(&self) -> String {
        self.current.display().to_string()
    }
}
