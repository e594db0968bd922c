//! Which source files a tracefile of coverage has, and by which names.
//!
//! Tools that read tracefiles open the sources. So files that are not there are left out (the standard library of Rust is compiled under a
//! name of another machine), and those that were found elsewhere ([`sources::locate`]) get the name of that place.

use anyhow::{Context, Result, bail};
use glob::Pattern;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What of files is wanted.
pub struct Files {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    /// Files below this folder are named relative to it.
    project: Option<PathBuf>,
    missing: RefCell<BTreeSet<String>>,
}

impl Files {
    /// Those that match a pattern to include, if there is any, and none to exclude.
    ///
    /// # Errors
    /// A pattern cannot be read, or there is no such folder.
    pub fn new(include: &[String], exclude: &[String], project: Option<&Path>) -> Result<Files> {
        let pattern = |text: &String| {
            Pattern::new(text.trim_end_matches('/')).with_context(|| format!("`{text}` is no pattern for files: give one such as src/*.c"))
        };
        let project = match project {
            Some(folder) if !folder.is_dir() => {
                bail!("there is no folder {}: --relative-to is the folder that names begin behind", folder.display())
            }
            Some(folder) => Some(folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?),
            None => None,
        };
        let all = |texts: &[String]| texts.iter().map(pattern).collect::<Result<Vec<Pattern>>>();
        Ok(Files { include: all(include)?, exclude: all(exclude)?, project, missing: RefCell::default() })
    }

    /// The name of a file that the compiler knew as `path`, and that is at `found`; `None` if it is left out.
    pub fn name(&self, path: &str, found: Option<PathBuf>) -> Option<String> {
        let Some(found) = found else {
            if self.is_wanted(Path::new(path), Path::new(path)) {
                self.missing.borrow_mut().insert(path.to_owned());
            }
            return None;
        };
        let found = found.canonicalize().unwrap_or(found);
        let name = self.project.as_ref().and_then(|folder| found.strip_prefix(folder).ok()).unwrap_or(&found);
        self.is_wanted(&found, name).then(|| name.display().to_string())
    }

    /// Files that are wanted and were not found.
    pub fn missing(&self) -> Vec<String> {
        self.missing.borrow().iter().cloned().collect()
    }

    /// Whether a file is wanted, by its place or its name. With a project, what is to be included by a relative pattern lies in it: other
    /// packages have folders called `src`, too.
    pub fn is_wanted(&self, path: &Path, name: &Path) -> bool {
        // A folder's name stands for all files in it, wherever it is.
        let matches = |pattern: &Pattern| {
            let of = |path: &Path| {
                path.ancestors().any(|part| pattern.matches_path(part))
                    || tails(path).any(|tail| tail.ancestors().any(|part| pattern.matches_path(part)))
            };
            of(path) || of(name)
        };
        let is_foreign = self.project.is_some() && name.is_absolute();
        let includes = |pattern: &Pattern| matches(pattern) && (!is_foreign || pattern.as_str().starts_with('/'));
        (self.include.is_empty() || self.include.iter().any(includes)) && !self.exclude.iter().any(matches)
    }
}

/// A path without its first part, then without the next, and so on.
fn tails(path: &Path) -> impl Iterator<Item = &Path> {
    std::iter::successors(Some(path), |path| {
        let mut rest = path.components();
        rest.next()?;
        Some(rest.as_path())
    })
    .filter(|tail| !tail.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_chosen_by_patterns_and_folders() {
        let wanted = |include: &[&str], exclude: &[&str], path: &str| {
            let texts = |all: &[&str]| all.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
            Files::new(&texts(include), &texts(exclude), None).unwrap().is_wanted(Path::new(path), Path::new(path))
        };
        assert!(wanted(&[], &[], "/home/me/project/src/a.c"));
        for include in ["src", "src/", "*.c", "src/*.c", "/home/me/project", "/home/me/*", "project/src/a.c"] {
            assert!(wanted(&[include], &[], "/home/me/project/src/a.c"), "{include}");
            assert!(!wanted(&[], &[include], "/home/me/project/src/a.c"), "{include}");
        }
        for include in ["sr", "*.h", "/project", "c"] {
            assert!(!wanted(&[include], &[], "/home/me/project/src/a.c"), "{include}");
        }
        // Of a project, its own files only.
        let of_project = |include: &str, name: &str| {
            let files = Files::new(&[include.to_owned()], &[], Some(Path::new("/"))).unwrap();
            files.is_wanted(Path::new("/home/me/other/src/a.c"), Path::new(name))
        };
        assert!(of_project("src", "src/a.c") && of_project("src/*.c", "src/a.c") && !of_project("src", "/home/me/other/src/a.c"));
        assert!(of_project("/home/me/other", "/home/me/other/src/a.c"));
        assert!(!wanted(&["src"], &["*.c"], "/home/me/project/src/a.c"));
        assert!(Files::new(&["[".to_owned()], &[], None).is_err());
    }
}
