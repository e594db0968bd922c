//! Sets of known paths by name: files of known paths, profiles, runs and suites.

use crate::named;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use trodden_unit::KnownPaths;

/// Loads the paths of a file, run or suite, or of several, separated by commas.
///
/// # Errors
/// A name stands for nothing, or a file is damaged.
pub fn known_paths(wanted: &OsStr) -> Result<KnownPaths> {
    if Path::new(wanted).is_file() {
        return paths_in_file(Path::new(wanted));
    }
    let mut known = KnownPaths::default();
    let names = wanted.to_str().with_context(|| format!("there is no file {}", wanted.display()))?;
    for name in names.split(',') {
        known.merge(match read_known_paths(Path::new(name))? {
            Some(known) => known,
            None => named::load(name)?.known_paths()?,
        })?;
    }
    Ok(known)
}

fn paths_in_file(file: &Path) -> Result<KnownPaths> {
    match read_known_paths(file)? {
        Some(known) => Ok(known),
        None => Ok(named::load_file(file)?.known_paths()?),
    }
}

/// Reads a file of known paths. Returns `None` if the file is of another kind or cannot be read.
///
/// # Errors
/// The file is damaged.
pub fn read_known_paths(file: &Path) -> Result<Option<KnownPaths>> {
    let bytes = fs::read(file).ok().filter(|bytes| KnownPaths::is_known_paths_file(bytes));
    bytes.map(|bytes| KnownPaths::from_bytes(&bytes).with_context(|| file.display().to_string())).transpose()
}
