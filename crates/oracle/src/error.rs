//! What can go wrong while checking. A difference between a profile and an oracle is no error: it is a result.

use std::path::PathBuf;

/// Why something could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// A tool is missing.
    #[error("{tool} cannot be run ({source}): install LLVM 22 (Debian: apt-get install clang-22 llvm-22 libclang-rt-22-dev)")]
    Tool {
        /// The tool.
        tool: String,
        /// What happened.
        source: std::io::Error,
    },
    /// A program cannot be run step by step.
    #[error("{program}: cannot {what} it step by step: {source}; tracing must be allowed (/proc/sys/kernel/yama/ptrace_scope)")]
    Trace {
        /// The program.
        program: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What happened.
        source: nix::Error,
    },
    /// A tool failed.
    #[error("{command}\nfailed:\n{message}")]
    Failed {
        /// Its command line.
        command: String,
        /// What it said.
        message: String,
    },
    /// Code that the oracle does not understand.
    #[error("function `{function}`: {what}")]
    Text {
        /// The function.
        function: String,
        /// What is not understood.
        what: String,
    },
    /// An oracle's own file is damaged.
    #[error("{path}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The image is none.
    #[error(transparent)]
    Image(#[from] trodden_unit::ImageError),
    /// Branches could not be made a profile.
    #[error(transparent)]
    Import(#[from] trodden_trace::ImportError),
    /// Settings of a build that cannot be read.
    #[error(transparent)]
    Spelling(#[from] trodden_unit::experiment::SpellingError),
    /// Settings of a build that make no sense.
    #[error(transparent)]
    Request(#[from] trodden_unit::experiment::RequestError),
    /// A file of an earlier profile that the build was given.
    #[error(transparent)]
    Input(#[from] trodden_unit::experiment::InputError),
    /// A unit's frame cannot be read.
    #[error(transparent)]
    Frame(#[from] trodden_unit::FrameError),
    /// A map is damaged.
    #[error(transparent)]
    Map(#[from] trodden_unit::MapError),
    /// Counts cannot be read.
    #[error(transparent)]
    Profile(#[from] trodden_profile::ProfileError),
}

impl Error {
    /// For `map_err` of what reads and writes files.
    pub fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::File { path: path.to_owned(), source }
    }
}
