//! Files and folders that only their owner can access. Profiles, raw counts and recordings are private, because they contain command lines
//! and other personal data.
//!
//! Inside a run store, new files and folders get the permissions of the store's folder instead, so users share a store by changing the
//! permissions of that folder.

use crate::temporary::TemporaryFolder;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Name of the folder of a run store.
pub const RUN_STORE_FOLDER: &str = ".trodden";
const FOLDER_MODE: u32 = 0o700;

/// The run store that the user chose for the whole process; unset if trodden searches for the store.
static RUN_STORE_NAMED_BY_USER: OnceLock<PathBuf> = OnceLock::new();

/// Sets the run store for the whole process. Later calls have no effect.
pub(crate) fn set_run_store_named_by_user(folder: PathBuf) {
    let _ = RUN_STORE_NAMED_BY_USER.set(folder);
}

pub(crate) fn run_store_named_by_user() -> Option<&'static Path> {
    RUN_STORE_NAMED_BY_USER.get().map(PathBuf::as_path)
}

/// Returns the mode bits for new folders in `folder`: those of the run store that contains `folder`; outside run stores, access for the
/// owner only.
pub fn mode_for_new_folder(folder: &Path) -> u32 {
    let is_store = |path: &&Path| path.ends_with(RUN_STORE_FOLDER) || run_store_named_by_user() == Some(*path);
    let store = folder.ancestors().find(is_store).and_then(|store| store.metadata().ok());
    store.map_or(FOLDER_MODE, |store| store.mode() & 0o7777)
}

/// Returns the mode bits for new files in `folder`, following the same rule as [`mode_for_new_folder`].
pub fn mode_for_new_file(folder: &Path) -> u32 {
    mode_for_new_folder(folder) & 0o666 | 0o600
}

/// Creates a folder and its missing parents. Existing folders keep their permissions.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let create = || match create_new_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    };
    match create() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(path.parent().filter(|above| !above.as_os_str().is_empty()).ok_or(error)?)?;
            // Tries only once more. Otherwise the recursion would not end in `/proc`, where creating a folder fails with `NotFound`
            // although the parent exists.
            create()
        }
        other => other,
    }
}

/// Creates a folder whose parent exists. Fails if the folder exists already, or cannot be created.
pub fn create_new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)?;
    match mode_for_new_folder(path.parent().unwrap_or(path)) {
        FOLDER_MODE => Ok(()),
        // Sets the mode explicitly, since the umask would otherwise remove permissions of a shared store.
        mode => std::fs::set_permissions(path, Permissions::from_mode(mode)),
    }
}

/// Creates a file, or truncates an existing one, and sets its permissions.
pub fn create_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mode = mode_for_new_file(path.parent().unwrap_or(path));
    let there = file.metadata()?;
    // Only for regular files: pipes and devices keep their permissions.
    if there.is_file() && there.mode() & 0o777 != mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(file)
}

/// Creates a temporary folder, which is removed when the value is dropped. Programs that handle signals also remove it when a signal ends
/// them ([`temporary`](crate::temporary)).
pub fn temporary_folder(prefix: &str) -> io::Result<TemporaryFolder> {
    TemporaryFolder::create_in(&std::env::temp_dir(), prefix, FOLDER_MODE)
}

/// Creates a temporary folder in `base`, which is removed like that of [`temporary_folder`].
pub fn temporary_folder_in(base: &Path, prefix: &str) -> io::Result<TemporaryFolder> {
    TemporaryFolder::create_in(base, prefix, mode_for_new_folder(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_folders_are_created() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("a/b/c");
        for _ in 0..2 {
            create_folder(&inner).unwrap();
            assert!(inner.is_dir());
        }
    }

    #[test]
    fn creating_a_folder_in_a_file_or_in_proc_fails() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(create_folder(&place.path().join("file")).is_err());
        assert!(create_folder(&place.path().join("file/below")).is_err());
        assert!(create_folder(Path::new("/proc/trodden-no-such-folder/below")).is_err());
    }
}
