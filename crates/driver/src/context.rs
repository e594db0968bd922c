//! The process's environment as a value. This library never reads the environment itself: the program fills a context once and passes it
//! on.

use anyhow::{Context, Result, anyhow};
use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use trodden_launch::temporary::{TemporaryFolder, create_folder_in};
use trodden_unit::experiment::InputFolder;
use trodden_unit::{UnitCache, cache::CACHE_VARIABLE};

/// A function that advances a progress display by one item.
pub type ProgressCallback = Box<dyn Fn() + Send + Sync>;

/// The environment of this process, and callbacks that the program provides.
#[derive(Debug)]
pub struct DriverContext {
    /// Environment variables.
    pub variables: HashMap<OsString, OsString>,
    /// This program's executable, with symbolic links resolved.
    pub program: io::Result<PathBuf>,
    /// The working folder.
    pub directory: io::Result<PathBuf>,
    /// The folder in which temporary files are created.
    pub temporary: PathBuf,
    /// Starts a progress display for the given number of items. The text names the items, in the plural.
    pub progress: fn(usize, &'static str) -> ProgressCallback,
}

impl DriverContext {
    /// Returns the value of an environment variable, even if it is empty; `None` if the variable is not set.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Returns the value of an environment variable; `None` if it is empty or not set.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// Returns the folders in `PATH`, in order.
    pub fn search_path(&self) -> impl Iterator<Item = PathBuf> {
        self.variable("PATH").into_iter().flat_map(env::split_paths)
    }

    /// Returns the unit cache. Fails if the environment names neither a cache nor a home folder.
    pub fn store(&self) -> Result<UnitCache> {
        let root = UnitCache::root_from_environment(|name| self.variable(name).map(OsStr::to_owned));
        let root = root.ok_or_else(|| anyhow!("cannot determine the folder of the unit cache. Set {CACHE_VARIABLE} (or HOME)"))?;
        // The path must be absolute, because the compiler and the assembler may run in different folders.
        Ok(UnitCache::new(std::path::absolute(root)?))
    }

    /// Returns the folder for the input files of builds, which is inside the unit cache.
    pub fn inputs(&self) -> Result<InputFolder> {
        Ok(self.store()?.inputs())
    }

    /// Returns this program's executable, with symbolic links resolved.
    pub fn executable(&self) -> Result<&Path> {
        let known = self.program.as_deref().map_err(|error| anyhow!("{error}"));
        known.context("cannot find trodden's own executable (is /proc mounted?)")
    }

    /// Returns the folder that contains this program's executable, with symbolic links resolved.
    pub fn executable_folder(&self) -> Result<&Path> {
        Ok(self.executable()?.parent().unwrap_or(Path::new("/")))
    }

    /// Returns the working folder.
    pub fn directory(&self) -> Result<&Path> {
        self.directory.as_deref().map_err(|error| anyhow!("{error}"))
    }

    /// Creates a temporary folder that only its owner can access.
    pub fn folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        Ok(create_folder_in(&self.temporary, prefix)?)
    }
}

#[cfg(test)]
impl DriverContext {
    /// Creates a context for tests, with the working folder `folder`, these variables, and a unit cache that is empty.
    pub(crate) fn in_folder(folder: &Path, variables: &[(&str, &str)]) -> DriverContext {
        let mut variables: HashMap<OsString, OsString> = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        variables.insert(CACHE_VARIABLE.into(), folder.join("store").into());
        DriverContext {
            variables,
            program: Ok(folder.join("bin/trodden")),
            directory: Ok(folder.to_owned()),
            temporary: folder.to_owned(),
            progress: |_, _| Box::new(|| {}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_variable_has_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(folder.path(), &[("EMPTY", ""), ("PATH", "/a:/b")]);
        assert_eq!((context.variable("EMPTY"), context.value("EMPTY"), context.variable("NONE")), (Some(OsStr::new("")), None, None));
        assert_eq!(context.search_path().collect::<Vec<_>>(), [PathBuf::from("/a"), "/b".into()]);
    }

    #[test]
    fn unit_cache_is_found_by_variables_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut context = DriverContext::in_folder(folder.path(), &[]);
        assert_eq!(context.store().unwrap().root(), folder.path().join("store"));
        context.variables.clear();
        assert!(context.store().unwrap_err().to_string().contains("TRODDEN_CACHE"));
    }
}
