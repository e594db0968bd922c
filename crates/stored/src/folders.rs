//! The folders that environment variables name. Programs pass them as values, because libraries do not read the environment.

use anyhow::{Context, Result};
use std::path::PathBuf;
use trodden_profile::temporary::TemporaryFolder;
use trodden_unit::UnitCache;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::InputFolder;

/// Folders that environment variables name, and the current folder.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The unit cache; `None` if no environment variable determines its location.
    pub units: Option<UnitCache>,
    /// Folder for temporary files and folders.
    pub temporary: PathBuf,
    /// The current folder, against which relative source names are resolved.
    pub current: PathBuf,
}

impl Folders {
    /// Returns the unit cache. Fails if no environment variable determines its location.
    pub fn units(&self) -> Result<&UnitCache> {
        self.units.as_ref().with_context(|| format!("cannot determine the folder of the unit cache. Set {CACHE_VARIABLE} (or HOME)"))
    }

    /// Returns the unit cache's folder for input files of builds. Fails if no environment variable determines its location.
    pub fn inputs(&self) -> Result<InputFolder> {
        Ok(self.units()?.inputs())
    }

    /// Creates a temporary folder that only the user can access. It is removed when the returned value is dropped.
    pub fn temporary_folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        let base = &self.temporary;
        TemporaryFolder::create_in(base, prefix, 0o700)
            .with_context(|| format!("cannot create a temporary folder in {} (set TMPDIR to a writable folder)", base.display()))
    }

    /// The current folder's path as text.
    pub fn current_text(&self) -> String {
        self.current.display().to_string()
    }
}
