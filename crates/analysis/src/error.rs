//! Errors of reports of users.

use std::io;
use std::path::{Path, PathBuf};

/// Why a file of reports cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FieldError {
    /// The system refused to read or write.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried (`read`, `write`).
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A report of untested paths is damaged.
    #[error("{path}: damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
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
