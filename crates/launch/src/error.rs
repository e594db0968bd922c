//! Errors about processes, jobs and temporary folders. Each message names the object and, if known, says what to do.

use std::io;
use std::path::PathBuf;

/// The errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A temporary folder cannot be created.
    #[error("cannot create a temporary folder in {base}. Set TMPDIR to a writable folder")]
    TemporaryFolder {
        /// The parent folder of the temporary folder.
        base: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A temporary folder with the permissions of its parent folder cannot be created.
    #[error("cannot write to folder {folder}")]
    NotWritable {
        /// The parent folder of the shared folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program that the user named cannot be run. [`crate::process::cannot_run_error`] creates this error.
    #[error("cannot run {program}: {error}{advice}")]
    NotRun {
        /// Name or path of the program, as the user gave it.
        program: String,
        /// The cause.
        error: io::Error,
        /// Advice to the user, preceded by a full stop and a space. Empty if there is no advice for the cause.
        advice: &'static str,
    },
    /// A script, log or lock file of the job cannot be read or written.
    #[error("cannot access the job's file {path}: {source}. Run the job in a writable folder")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Signal handlers cannot be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    /// A program that an engine needs, such as `sbatch` or `sh`, cannot be run.
    #[error("cannot run {program}: {source}. {advice}")]
    Tool {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
        /// Advice to the user, as a sentence without a full stop.
        advice: &'static str,
    },
    /// A program that an engine needs exited with an error.
    #[error("{program} failed: {message}")]
    ToolFailed {
        /// The program.
        program: String,
        /// The program's standard error output.
        message: String,
    },
    /// A task still has no result after all attempts.
    #[error("task {task} ended without a result: {last} (see {log})")]
    Failed {
        /// Index of the task in the job.
        task: usize,
        /// The file with the task's output.
        log: PathBuf,
        /// The last lines of the task's output.
        last: String,
    },
    /// A task was run twice, and the two results differ.
    #[error("task {task} ran twice, and its results differ: {one} and {other}. Run a command that prints the same in each run")]
    Duplicate {
        /// Index of the task in the job.
        task: usize,
        /// Path of the first result.
        one: PathBuf,
        /// Path of the second result, which differs.
        other: PathBuf,
    },
    /// This process received SIGINT, SIGTERM or SIGHUP.
    #[error("interrupted: all running tasks were ended")]
    Interrupted,
    /// The command template has no placeholder for the script.
    #[error(
        "the command `{0}` has no placeholder for the task's script. Add {{script}}, {{index}} or {{each}}, as in `ssh host{{index}} sh \
         {{script}}`"
    )]
    NoPlaceholder(String),
}
