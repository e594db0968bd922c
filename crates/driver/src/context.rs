//! The process in which the drivers work, as a value: this library reads no environment. A program fills it once, and passes it on.

use anyhow::{Context, Result, anyhow};
use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use trodden_launch::temporary::{TemporaryFolder, folder_in};
use trodden_unit::experiment::InputFolder;
use trodden_unit::{UnitCache, cache::CACHE_VARIABLE};

/// Reports that one more of several things is done.
pub type Step = Box<dyn Fn() + Send + Sync>;

/// The running process, and what its program does for the drivers.
#[derive(Debug)]
pub struct DriverContext {
    /// The environment variables.
    pub variables: HashMap<OsString, OsString>,
    /// The running program's own file, links followed.
    pub program: io::Result<PathBuf>,
    /// The working folder.
    pub directory: io::Result<PathBuf>,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// Begins to show the progress of work on so many things; the text is their name in the plural.
    pub progress: fn(usize, &'static str) -> Step,
}

impl DriverContext {
    /// A variable that is set, be it to nothing.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// A variable that is set to something.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// The folders in which programs are sought, in order.
    pub fn search_path(&self) -> impl Iterator<Item = PathBuf> {
        self.variable("PATH").into_iter().flat_map(env::split_paths)
    }

    /// The unit cache.
    ///
    /// # Errors
    /// The environment names none, and there is no home folder.
    pub fn store(&self) -> Result<UnitCache> {
        let root = UnitCache::root_from(|name| self.variable(name).map(OsStr::to_owned));
        let root = root.ok_or_else(|| anyhow!("no folder for the unit cache: set {CACHE_VARIABLE} (or HOME)"))?;
        // Absolute: the compiler and the assembler may run elsewhere.
        Ok(UnitCache::at(std::path::absolute(root)?))
    }

    /// The folder of files that builds read.
    ///
    /// # Errors
    /// There is no store.
    pub fn inputs(&self) -> Result<InputFolder> {
        Ok(self.store()?.inputs())
    }

    /// The running program's own file, links followed.
    ///
    /// # Errors
    /// The system does not say.
    pub fn own_program(&self) -> Result<&Path> {
        let known = self.program.as_deref().map_err(|error| anyhow!("{error}"));
        known.context("cannot find the running program's own file (is /proc mounted?)")
    }

    /// The folder of the running program, links followed.
    ///
    /// # Errors
    /// The system does not say.
    pub fn own_folder(&self) -> Result<&Path> {
        Ok(self.own_program()?.parent().unwrap_or(Path::new("/")))
    }

    /// The working folder.
    ///
    /// # Errors
    /// It was removed, or may not be read.
    pub fn directory(&self) -> Result<&Path> {
        self.directory.as_deref().map_err(|error| anyhow!("{error}"))
    }

    /// Creates a folder among temporary files, which only its user can read.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn folder(&self, prefix: &str) -> Result<TemporaryFolder> {
        Ok(folder_in(&self.temporary, prefix)?)
    }
}

#[cfg(test)]
impl DriverContext {
    /// A process in a folder, with these variables and a store of its own.
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
    fn an_empty_variable_has_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let context = DriverContext::in_folder(folder.path(), &[("EMPTY", ""), ("PATH", "/a:/b")]);
        assert_eq!((context.variable("EMPTY"), context.value("EMPTY"), context.variable("NONE")), (Some(OsStr::new("")), None, None));
        assert_eq!(context.search_path().collect::<Vec<_>>(), [PathBuf::from("/a"), "/b".into()]);
    }

    #[test]
    fn stores_are_found_by_variables_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut context = DriverContext::in_folder(folder.path(), &[]);
        assert_eq!(context.store().unwrap().root(), folder.path().join("store"));
        context.variables.clear();
        assert!(context.store().unwrap_err().to_string().contains("TRODDEN_CACHE"));
    }
}
