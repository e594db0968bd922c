//! What can go wrong with a binary: each message names the file and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// A failure in this crate.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// The file cannot be read.
    #[error("{path}: cannot read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is no executable or shared library of this platform.
    #[error("{path}: {what}; name an x86-64 ELF executable or shared library")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The file is no core file.
    #[error("{path}: {what}; name the core file of an x86-64 process (`ulimit -c unlimited`, or `coredumpctl dump`)")]
    Core {
        /// The file.
        path: PathBuf,
        /// What it is, or what is wrong with it.
        what: String,
    },
    /// A file is no side build of another, from which the map of its blocks could come.
    #[error("{path}: {what}; build the same sources with the same options, and add -fbasic-block-address-map")]
    SideBuild {
        /// The side build.
        path: PathBuf,
        /// Why not.
        what: String,
    },
    /// A part of the file is damaged.
    #[error("{path}: damaged: {what}; install or build the file again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part, and what is wrong with it.
        what: String,
    },
    /// The addresses of the file's blocks are not known.
    #[error("{image}: {what}")]
    Addresses {
        /// The file.
        image: PathBuf,
        /// Why not, and what to do.
        what: String,
    },
}

impl BinaryError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> BinaryError {
        let path = path.to_owned();
        move |source| BinaryError::Read { path, source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> BinaryError {
        BinaryError::Damaged { path: path.to_owned(), what: what.into() }
    }
}
