//! Errors of checking. A difference between a profile and an oracle is a result, not an error.

use std::path::PathBuf;

/// Why something could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// A file cannot be read or written.
    #[error("cannot read or write {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program cannot be started.
    #[error("cannot run {tool}: {source}. Install LLVM if it is missing (Debian: apt-get install clang-22 llvm-22 libclang-rt-22-dev)")]
    Tool {
        /// The program.
        tool: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program cannot be single-stepped.
    #[error("cannot {what} {program}: {source}. Check that tracing is allowed (/proc/sys/kernel/yama/ptrace_scope)")]
    Trace {
        /// The program.
        program: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: nix::Error,
    },
    /// A command failed.
    #[error("`{command}` failed:\n{message}")]
    Failed {
        /// The command line.
        command: String,
        /// The command's exit status and error output.
        message: String,
    },
    /// A function's text does not match its map.
    #[error("function `{function}`: {what}")]
    Text {
        /// The function.
        function: String,
        /// The mismatch.
        what: String,
    },
    /// The content of a program, a link recipe or an oracle's own file is unusable.
    #[error("{path}: {what}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The program was not instrumented by trodden, or its image is corrupt.
    #[error(transparent)]
    Image(#[from] trodden_unit::ImageError),
    /// Branches cannot be imported as a profile.
    #[error(transparent)]
    Import(#[from] trodden_trace::ImportError),
    /// Settings of a build cannot be parsed.
    #[error(transparent)]
    Spelling(#[from] trodden_unit::experiment::SpellingError),
    /// Settings of a build are inconsistent.
    #[error(transparent)]
    Request(#[from] trodden_unit::experiment::RequestError),
    /// An input of the build, from an earlier profile, cannot be read.
    #[error(transparent)]
    Input(#[from] trodden_unit::experiment::InputError),
    /// A unit's frame cannot be read.
    #[error(transparent)]
    Frame(#[from] trodden_unit::FrameError),
    /// A map is corrupt.
    #[error(transparent)]
    Map(#[from] trodden_unit::MapError),
    /// Counts cannot be read.
    #[error(transparent)]
    Profile(#[from] trodden_profile::ProfileError),
}

impl OracleError {
    /// Returns a function for `map_err` that adds the file's path to an I/O error.
    pub fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> OracleError + '_ {
        move |source| OracleError::File { path: path.to_owned(), source }
    }
}
