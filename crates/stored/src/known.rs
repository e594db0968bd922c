//! Loads known paths, which are the paths that earlier executions took, from profiles, runs, suites, and files that contain only such
//! paths.

use crate::named;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use trodden_unit::KnownPaths;

/// Loads the known paths of a file, run or suite. `names` may list several of these, separated by commas. Fails if a name does not exist or
/// a file is corrupt.
pub fn load_known_paths(names: &OsStr) -> Result<KnownPaths> {
    if Path::new(names).is_file() {
        return load_from_file(Path::new(names));
    }
    let mut known = KnownPaths::default();
    let text = names.to_str().with_context(|| format!("file {} does not exist", names.display()))?;
    for name in text.split(',') {
        known.merge(match read_known_paths(Path::new(name))? {
            Some(known) => known,
            None => named::load_profile(name)?.known_paths()?,
        })?;
    }
    Ok(known)
}

fn load_from_file(file: &Path) -> Result<KnownPaths> {
    match read_known_paths(file)? {
        Some(known) => Ok(known),
        None => Ok(named::load_file(file)?.known_paths()?),
    }
}

/// Reads a file of known paths. Returns `None` if the file cannot be read or has a different format. Fails if it is corrupt.
pub fn read_known_paths(file: &Path) -> Result<Option<KnownPaths>> {
    let bytes = fs::read(file).ok().filter(|bytes| KnownPaths::is_known_paths_file(bytes));
    bytes.map(|bytes| KnownPaths::from_bytes(&bytes).with_context(|| file.display().to_string())).transpose()
}
