//! Errors about executables, shared libraries and core files. Each message names the file and the problem, and says what to do.

use std::io;
use std::path::{Path, PathBuf};

/// An error about an executable, shared library, side build or core file.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not an executable or shared library for this platform.
    #[error("cannot use {path}: it is {what}. Pass an x86-64 ELF executable or shared library")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What the file is instead.
        what: String,
    },
    /// The file is not a usable core file.
    #[error("cannot read core file {path}: {what}. Pass the core file of an x86-64 process (`ulimit -c unlimited`, or `coredumpctl dump`)")]
    Core {
        /// The file.
        path: PathBuf,
        /// Reason why the core file cannot be used.
        what: String,
    },
    /// The file cannot be used as a side build (a second build with address map) of the given binary.
    #[error(
        "cannot use {path} as a second build that provides block addresses (side build): {what}. Build the same sources with the same \
         options, and add -fbasic-block-address-map"
    )]
    SideBuild {
        /// The side build.
        path: PathBuf,
        /// Reason why the side build cannot be used.
        what: String,
    },
    /// A part of the file is corrupt.
    #[error("{path} is corrupt: {what}. Rebuild or reinstall this file")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Which part of the file is corrupt, and how.
        what: String,
    },
    /// A part of the file's debug information is in a separate file, which cannot be read. Names and lines of other functions are known.
    #[error(
        "some inlined functions of {image} are unknown, because its split debug information in {missing} cannot be read. Build it again, \
         and keep its .dwo files or put a package of them (made by llvm-dwp) at {image}.dwp"
    )]
    SplitDwarf {
        /// The file.
        image: PathBuf,
        /// The file with the debug information.
        missing: PathBuf,
    },
    /// The addresses of the file's basic blocks are unknown.
    #[error("{image}: {what}")]
    NoBlockAddresses {
        /// The file.
        image: PathBuf,
        /// Reason why the addresses are unknown, and what to do.
        what: String,
    },
}

impl BinaryError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> BinaryError {
        let path = path.to_owned();
        move |source| BinaryError::Read { path, source }
    }

    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> BinaryError {
        BinaryError::Corrupt { path: path.to_owned(), what: what.into() }
    }
}
