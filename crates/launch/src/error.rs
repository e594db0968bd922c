//! Errors about processes, jobs and temporary folders. Each message names the object and, if known, says what to do.

use std::io;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A temporary folder cannot be created.
    #[error("cannot create a temporary folder in {base}. Set TMPDIR to a writable folder")]
    TemporaryFolder {
        /// The parent folder.
        base: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A folder cannot be created in a given folder.
    #[error("cannot write to folder {folder}")]
    NotWritable {
        /// The parent folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program that the user named cannot be run; see [`crate::process::cannot_run`].
    #[error("cannot run {program}: {error}{advice}")]
    NotRun {
        /// The program.
        program: String,
        /// The cause.
        error: io::Error,
        /// What the user can do, with a full stop before it; empty if unknown.
        advice: &'static str,
    },
    /// A file of the job cannot be read or written.
    #[error("cannot access the job's file {path}: {source}. Run the job in a writable folder")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Signals cannot be handled.
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    /// A program of the engine does not exist or cannot be run.
    #[error("cannot run {program}: {source}. {advice}")]
    Tool {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
        /// What the user can do, as a sentence.
        advice: &'static str,
    },
    /// A program of the engine failed.
    #[error("{program} failed: {message}")]
    ToolFailed {
        /// The program.
        program: String,
        /// Its error output.
        message: String,
    },
    /// A task has no result after all attempts.
    #[error("task {task} ended without a result: {last} (see {log})")]
    Failed {
        /// The task.
        task: usize,
        /// The file with its output.
        log: PathBuf,
        /// The last lines of its output.
        last: String,
    },
    /// A task ran twice, with different results.
    #[error("task {task} ran twice, and its results differ: {one} and {other}. Run a command that prints the same in each run")]
    Duplicate {
        /// The task.
        task: usize,
        /// The first result.
        one: PathBuf,
        /// The second.
        other: PathBuf,
    },
    /// A signal asked this process to end.
    #[error("interrupted; all running tasks were ended")]
    Interrupted,
    /// The command template has no placeholder for the script.
    #[error(
        "the command `{0}` has no placeholder for the task's script. Add {{script}}, {{index}} or {{each}}, as in `ssh host{{index}} sh \
         {{script}}`"
    )]
    NoPlaceholder(String),
}
