//! Finds programs on the search path. A compiler's name may be a link to a launcher: trodden's driver or a compiler cache.
//!
//! A launcher calls the next compiler of that name on the search path. If that is the other launcher, they call each other forever, so a
//! search for a compiler skips all launchers.

use crate::context::DriverContext;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trodden_launch::process::find_in_search_path;

/// Names of launchers.
const COMPILER_LAUNCHERS: [&str; 5] = ["trodden", "ccache", "sccache", "distcc", "icecc"];

/// Finds the program that a word names by its path or by a name on the search path. For a link to a launcher, returns the next program with
/// the link's name on the search path, which the launcher would call.
pub(super) fn program_named(context: &DriverContext, word: &OsStr) -> Option<PathBuf> {
    match word.as_encoded_bytes().contains(&b'/') {
        true if is_launcher(Path::new(word)) => find_compiler_on_path(context, Path::new(word).file_name()?),
        true => Some(PathBuf::from(word)).filter(|path| is_program(path)),
        false => find_compiler_on_path(context, word),
    }
}

/// Finds a program by name on the search path.
pub fn find_on_path(context: &DriverContext, name: &OsStr) -> Option<PathBuf> {
    find_in_search_path(name, context.variable("PATH"), is_program)
}

/// Finds a program by name on the search path, skipping links to launchers.
pub fn find_compiler_on_path(context: &DriverContext, name: &OsStr) -> Option<PathBuf> {
    context.search_path().map(|folder| folder.join(name)).find(|path| is_program(path) && !is_launcher(path))
}

/// Returns true if a file is a launcher or a link to one.
pub(super) fn is_launcher(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|file| COMPILER_LAUNCHERS.iter().any(|name| file.file_name() == Some(OsStr::new(name))))
}

/// Returns true if at least one class of users may execute the file.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
