//! The folders that environment variables name. Libraries do not read the environment, so each program passes them these folders.

use anyhow::{Context, Result};
use std::path::PathBuf;
use trodden_profile::temporary::TemporaryFolder;
use trodden_unit::UnitCache;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_unit::experiment::InputFolder;

/// The folders that environment variables name, and the current folder.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The unit cache; `None` if no environment variable determines its location.
    pub units: Option<UnitCache>,
    /// Folder in which temporary files and folders are created.
    pub temporary: PathBuf,
    /// The current folder, to which relative names of source files refer.
    pub current: PathBuf,
}

impl Folders {
    /// Returns the unit cache. Fails if no environment variable determines its location.
    pub fn units(&self) -> Result<&UnitCache> {
        self.units.as_ref().with_context(|| format!("cannot determine the folder of the unit cache. Set {CACHE_VARIABLE} (or HOME)"))
    }

    /// Returns the folder in the unit cache that holds input files of builds. Fails if no environment variable determines its location.
    pub fn inputs(&self) -> Result<InputFolder> {
        Ok(self.units()?.inputs())
    }

    /// Creates a temporary folder that only its owner can access. Dropping the returned value removes the folder.
    pub fn temporary_folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        let base = &self.temporary;
        TemporaryFolder::create_in(base, prefix, 0o700)
            .with_context(|| format!("cannot create a temporary folder in {} (set TMPDIR to a writable folder)", base.display()))
    }

    /// Returns the path of the current folder as text.
    pub fn current_text(&self) -> String {
        self.current.display().to_string()
    }
}
