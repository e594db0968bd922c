//! What can go wrong with processes, jobs and temporary folders: each message names the object, and what to do.

use std::io;
use std::path::PathBuf;

/// A failure in this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A temporary folder cannot be created.
    #[error("cannot create a temporary folder in {base}: set TMPDIR to a folder that can be written")]
    TemporaryFolder {
        /// Where it was to be.
        base: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder cannot be created in another one.
    #[error("cannot write to {folder}")]
    NotWritable {
        /// Where it was to be.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program that the user named cannot be run. See [`crate::process::not_run`].
    #[error("cannot run {program}: {error}{remedy}")]
    NotRun {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
        /// What can be done, with a colon before it; empty if nothing is known.
        remedy: &'static str,
    },
    /// A file of the job cannot be written or read.
    #[error("{path}: {source}: give the job a folder that can be written")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Signals cannot be handled.
    #[error("signals cannot be handled: {0}")]
    Signals(io::Error),
    /// A program of the engine is not there, or cannot be run.
    #[error("{program} cannot be run ({source}): {remedy}")]
    Tool {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A program of the engine fails.
    #[error("{program} fails: {message}")]
    Refused {
        /// The program.
        program: String,
        /// What it says.
        message: String,
    },
    /// A task has no result, however often it was run.
    #[error("task {task} ends without a result: {last} (see {log})")]
    Failed {
        /// The task.
        task: usize,
        /// What it printed.
        log: PathBuf,
        /// The last of that.
        last: String,
    },
    /// A task ran twice, with two results.
    #[error("task {task} ran twice and made two different results, {one} and {other}: what it runs does not do the same each time")]
    Duplicate {
        /// The task.
        task: usize,
        /// The first result.
        one: PathBuf,
        /// The second.
        other: PathBuf,
    },
    /// A signal asked this process to end.
    #[error("interrupted; what was running has been ended")]
    Interrupted,
    /// A template without what it needs.
    #[error(
        "the command `{0}` names neither {{script}}, {{index}} nor {{each}}: say where a task's script goes (`ssh host{{index}} sh \
            {{script}}`)"
    )]
    NoPlaceholder(String),
}
