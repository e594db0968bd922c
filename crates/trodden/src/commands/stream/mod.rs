//! Streams of paths and calls, shown. They are recorded by `trodden_recording::streams`.
//!
//! | file | what |
//! |---|---|
//! | `files.rs` | streams as the command line names them |
//! | `event_names.rs` | events in words, with source |
//! | `last.rs` | `trodden last` |
//! | `stopped.rs`, `unfinished.rs` | what a core file says of a thread's end |
//! | `show.rs`, `statistics.rs` | `trodden stream show`, `statistics` |

pub mod event_names;
pub mod files;
mod last;
mod show;
mod statistics;
mod stopped;
mod unfinished;

use crate::cli::Stream;
use crate::surroundings::surroundings;
use anyhow::Result;
use std::process::ExitCode;
use trodden_recording::streams::record;

pub use last::run as last;

/// `trodden stream`
///
/// # Errors
/// As of its parts.
pub fn run(job: &Stream) -> Result<ExitCode> {
    match job {
        Stream::Statistics(job) => statistics::run(job),
        Stream::Show(job) => show::run(job),
        Stream::Collect(job) => record::collect(&job.files, &surroundings()).map(|()| ExitCode::SUCCESS),
        Stream::Analysis(job) => crate::commands::sequences::run(job),
    }
}
