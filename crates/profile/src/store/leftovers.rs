//! Files that killed recorders left in a store: folders of raw files, and incomplete profiles.
//!
//! A recorder locks its folder of raw files, and a writer its unfinished file, as long as it runs ([`atomic_file`]). Therefore unlocked
//! files and folders are left over.

use super::{PROFILES_FOLDER, RAW_FOLDER_PREFIX, RunStore};
use crate::atomic_file;
use crate::container::TEMPORARY_PREFIX;
use crate::error::ProfileError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file or folder that a killed recorder left in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverFile {
    /// The file or folder.
    pub path: PathBuf,
    /// Size on disk in bytes, including the contents of a folder.
    pub bytes: u64,
}

/// Returns the size on disk, in bytes, of a file or of a folder with its contents. Files and folders that cannot be read count as 0.
fn disk_usage(path: &Path) -> u64 {
    let Ok(there) = path.symlink_metadata() else { return 0 };
    if !there.is_dir() {
        return there.blocks() * 512;
    }
    std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| disk_usage(&entry.path())).sum()
}

impl RunStore {
    /// Finds the folders of raw files and the incomplete profiles that killed recorders left. Excludes those that a running recorder has
    /// locked.
    pub fn find_leftover_files(&self) -> Result<Vec<LeftoverFile>, ProfileError> {
        let mut found = Vec::new();
        for (folder, prefixes) in
            [(self.folder.clone(), &[RAW_FOLDER_PREFIX, TEMPORARY_PREFIX][..]), (self.folder.join(PROFILES_FOLDER), &[TEMPORARY_PREFIX])]
        {
            let failed = ProfileError::io(&folder, "read");
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(ProfileError::io(&folder, "read"))?.path();
                let is_named =
                    path.file_name().is_some_and(|name| prefixes.iter().any(|p| name.as_encoded_bytes().starts_with(p.as_bytes())));
                if is_named && !path.is_symlink() && atomic_file::is_orphaned(&path) {
                    found.push(LeftoverFile { bytes: disk_usage(&path), path });
                }
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}
