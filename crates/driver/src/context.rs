//! The environment of the process as a value. This library never reads it directly: the program fills a context once and passes it on.

use anyhow::{Context, Result, anyhow};
use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use trodden_launch::temporary::{TemporaryFolder, folder_in};
use trodden_unit::experiment::InputFolder;
use trodden_unit::{UnitCache, cache::CACHE_VARIABLE};

/// Callback that advances a progress display by one item.
pub type ProgressCallback = Box<dyn Fn() + Send + Sync>;

/// The environment of the running process, and callbacks of its program.
#[derive(Debug)]
pub struct DriverContext {
    /// Environment variables.
    pub variables: HashMap<OsString, OsString>,
    /// The running program's own file, with symbolic links resolved.
    pub program: io::Result<PathBuf>,
    /// The working folder.
    pub directory: io::Result<PathBuf>,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// Starts a progress display for this many items, which a plural noun names.
    pub progress: fn(usize, &'static str) -> ProgressCallback,
}

impl DriverContext {
    /// Returns the value of a variable that is set, even if it is empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Returns the value of a variable that is set and not empty.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// Returns the folders of `PATH`, in order.
    pub fn search_path(&self) -> impl Iterator<Item = PathBuf> {
        self.variable("PATH").into_iter().flat_map(env::split_paths)
    }

    /// Returns the unit cache.
    ///
    /// # Errors
    /// Fails if the environment names neither a cache nor a home folder.
    pub fn store(&self) -> Result<UnitCache> {
        let root = UnitCache::root_from(|name| self.variable(name).map(OsStr::to_owned));
        let root = root.ok_or_else(|| anyhow!("cannot determine the folder of the unit cache. Set {CACHE_VARIABLE} (or HOME)"))?;
        // Made absolute, because the compiler and the assembler may run in other folders.
        Ok(UnitCache::new(std::path::absolute(root)?))
    }

    /// Returns the folder of input files of builds, which is part of the unit cache.
    pub fn inputs(&self) -> Result<InputFolder> {
        Ok(self.store()?.inputs())
    }

    /// Returns the running program's own file, with symbolic links resolved.
    pub fn executable(&self) -> Result<&Path> {
        let known = self.program.as_deref().map_err(|error| anyhow!("{error}"));
        known.context("cannot find trodden's own executable (is /proc mounted?)")
    }

    /// Returns the folder of the running program, with symbolic links resolved.
    pub fn executable_folder(&self) -> Result<&Path> {
        Ok(self.executable()?.parent().unwrap_or(Path::new("/")))
    }

    /// Returns the working folder.
    pub fn directory(&self) -> Result<&Path> {
        self.directory.as_deref().map_err(|error| anyhow!("{error}"))
    }

    /// Creates a private temporary folder.
    pub fn folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        Ok(folder_in(&self.temporary, prefix)?)
    }
}

#[cfg(test)]
impl DriverContext {
    /// Creates a context in a folder, with these variables and its own store.
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
