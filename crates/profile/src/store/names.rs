//! File names in a run store. Profiles and folders of streams are named after the number of the run.

use super::PROFILES_FOLDER;
use crate::container::PROFILE_EXTENSION;
use crate::error::ProfileError;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub fn profile_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(PROFILES_FOLDER).join(profile_name(number))
}

pub fn profile_name(number: u64) -> String {
    format!("{number:06}.{PROFILE_EXTENSION}")
}

/// Returns the run number in the name of a profile or of a folder of streams; `None` for all other names.
fn parse_run_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(&format!(".{PROFILE_EXTENSION}")).unwrap_or(name);
    // Numbers must fit into SQLite's integers, which are signed.
    let number = digits.parse().ok().filter(|n| (1..=i64::MAX as u64).contains(n))?;
    (format!("{number:06}") == digits).then_some(number)
}

/// Returns the numbers of the runs that have a profile or a folder of streams in `folder`. Empty if the folder does not exist.
pub fn run_numbers(folder: &Path) -> Result<BTreeSet<u64>, ProfileError> {
    let failed = || ProfileError::io(folder, "read");
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        other => other.map_err(failed())?,
    };
    let is_profiles = folder.ends_with(PROFILES_FOLDER);
    let mut found = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(failed())?.file_name();
        let name = name.to_str().filter(|name| name.ends_with(&format!(".{PROFILE_EXTENSION}")) == is_profiles);
        found.extend(name.and_then(parse_run_number));
    }
    Ok(found)
}
