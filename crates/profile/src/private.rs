//! Files and folders that only their owner may use: profiles, raw counts and recordings have command lines, and what programs read.
//!
//! What is in a run store has the permissions of the store's folder: who shares a store says so there, once.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

/// Permissions of folders.
pub const FOLDER_MODE: u32 = 0o700;

/// Makes a folder, and those above it that are missing.
///
/// # Errors
/// It cannot be made.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// Makes a folder in one that exists, with these permissions. One of that name keeps its own.
///
/// # Errors
/// It cannot be made.
pub fn create_folder_for(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        // The umask must not take away what others need in a folder that is shared.
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a folder for temporary files, which is removed when it is dropped.
///
/// # Errors
/// It cannot be made.
pub fn temporary_folder(prefix: &str) -> io::Result<TempDir> {
    temporary_folder_in(&std::env::temp_dir(), prefix)
}

/// The same in another folder.
///
/// # Errors
/// It cannot be made.
pub fn temporary_folder_in(base: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(FOLDER_MODE)).tempdir_in(base)
}
