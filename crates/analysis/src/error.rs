//! Errors of [`crate::field`].

use std::io;
use std::path::{Path, PathBuf};

/// A file of user reports cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FieldError {
    /// The operating system reported an error.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation (`read`, `write`).
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A report is corrupt.
    #[error("{path}: the report of untested paths is corrupt at byte {offset}: {what}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Position of the report in the file, in bytes.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl FieldError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> FieldError {
        let path = path.to_owned();
        move |source| FieldError::Io { path, action, source }
    }
}
