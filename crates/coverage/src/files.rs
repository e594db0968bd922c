//! Selects and names the source files in coverage output.
//!
//! Tools that read coverage output open the source files, so files that do not exist are omitted, such as those of Rust's standard library,
//! which was compiled on a different machine. A file that was moved is named by the path at which it was found.

use anyhow::{Context, Result, bail};
use glob::Pattern;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Selects source files by glob patterns, and names them for output.
pub struct FilePatterns {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    /// Files in this folder are named relative to it.
    project: Option<PathBuf>,
    missing: RefCell<BTreeSet<String>>,
}

impl FilePatterns {
    /// Selects the files that match a pattern in `include` (all if it is empty) and none in `exclude`. Fails if a pattern is invalid or
    /// `project` is not a folder.
    pub fn new(include: &[String], exclude: &[String], project: Option<&Path>) -> Result<FilePatterns> {
        let pattern = |text: &String| {
            Pattern::new(text.trim_end_matches('/'))
                .with_context(|| format!("invalid file pattern `{text}`: expected a pattern such as src/*.c"))
        };
        let project = match project {
            Some(folder) if !folder.is_dir() => {
                bail!(
                    "folder {} (--relative-to) does not exist. Pass an existing folder; file names will be relative to it",
                    folder.display()
                )
            }
            Some(folder) => Some(folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?),
            None => None,
        };
        let all = |texts: &[String]| texts.iter().map(pattern).collect::<Result<Vec<Pattern>>>();
        Ok(FilePatterns { include: all(include)?, exclude: all(exclude)?, project, missing: RefCell::default() })
    }

    /// Returns the name of a file for output; `None` if it is not selected or does not exist. `path` is its name in debug information, and
    /// `found` is where it is now.
    pub fn name(&self, path: &str, found: Option<PathBuf>) -> Option<String> {
        let Some(found) = found else {
            if self.is_selected(Path::new(path), Path::new(path)) {
                self.missing.borrow_mut().insert(path.to_owned());
            }
            return None;
        };
        let found = found.canonicalize().unwrap_or(found);
        let name = self.project.as_ref().and_then(|folder| found.strip_prefix(folder).ok()).unwrap_or(&found);
        self.is_selected(&found, name).then(|| name.display().to_string())
    }

    /// Returns the files that were selected but do not exist.
    pub fn missing(&self) -> Vec<String> {
        self.missing.borrow().iter().cloned().collect()
    }

    /// Returns true if a file is selected by its path or by its name for output. If there is a project folder, a relative pattern selects
    /// only files in it, because other packages have folders with the same names, such as `src`.
    pub fn is_selected(&self, path: &Path, name: &Path) -> bool {
        // A pattern may also match a folder at any depth, and then selects all files in it.
        let matches = |pattern: &Pattern| {
            let of = |path: &Path| {
                path.ancestors().any(|part| pattern.matches_path(part))
                    || path_suffixes(path).any(|tail| tail.ancestors().any(|part| pattern.matches_path(part)))
            };
            of(path) || of(name)
        };
        let is_foreign = self.project.is_some() && name.is_absolute();
        let includes = |pattern: &Pattern| matches(pattern) && (!is_foreign || pattern.as_str().starts_with('/'));
        (self.include.is_empty() || self.include.iter().any(includes)) && !self.exclude.iter().any(matches)
    }
}

/// Returns the path, the path without its first component, and so on.
fn path_suffixes(path: &Path) -> impl Iterator<Item = &Path> {
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
    fn files_are_selected_by_patterns_and_folders() {
        let wanted = |include: &[&str], exclude: &[&str], path: &str| {
            let texts = |all: &[&str]| all.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
            FilePatterns::new(&texts(include), &texts(exclude), None).unwrap().is_selected(Path::new(path), Path::new(path))
        };
        assert!(wanted(&[], &[], "/home/me/project/src/a.c"));
        for include in ["src", "src/", "*.c", "src/*.c", "/home/me/project", "/home/me/*", "project/src/a.c"] {
            assert!(wanted(&[include], &[], "/home/me/project/src/a.c"), "{include}");
            assert!(!wanted(&[], &[include], "/home/me/project/src/a.c"), "{include}");
        }
        for include in ["sr", "*.h", "/project", "c"] {
            assert!(!wanted(&[include], &[], "/home/me/project/src/a.c"), "{include}");
        }
        // With a project folder, relative patterns select only files in it.
        let of_project = |include: &str, name: &str| {
            let files = FilePatterns::new(&[include.to_owned()], &[], Some(Path::new("/"))).unwrap();
            files.is_selected(Path::new("/home/me/other/src/a.c"), Path::new(name))
        };
        assert!(of_project("src", "src/a.c") && of_project("src/*.c", "src/a.c") && !of_project("src", "/home/me/other/src/a.c"));
        assert!(of_project("/home/me/other", "/home/me/other/src/a.c"));
        assert!(!wanted(&["src"], &["*.c"], "/home/me/project/src/a.c"));
        assert!(FilePatterns::new(&["[".to_owned()], &[], None).is_err());
    }
}
