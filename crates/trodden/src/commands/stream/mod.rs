//! Streams of paths and calls: recording whole programs, flight recorders; showing them.
//!
//! | file | what |
//! |---|---|
//! | `record.rs` | `trodden record --whole-program`, `--last N`; `trodden stream collect` |
//! | `recorder.rs` | stream files to logs, while programs run |
//! | `event_names.rs` | events in words, with source |
//! | `last.rs` | `trodden last` |
//! | `stopped.rs`, `unfinished.rs` | what a core file says of a thread's end |
//! | `show.rs`, `statistics.rs` | `trodden stream show`, `statistics` |

pub mod event_names;
mod last;
mod record;
pub mod recorder;
mod show;
mod statistics;
mod stopped;
mod unfinished;

use crate::cli::Stream;
use anyhow::Result;
use std::process::ExitCode;

pub use last::run as last;
pub use record::{NAMES, bounds, draining, fold, move_logs, run as record};

/// `trodden stream`
///
/// # Errors
/// As of its parts.
pub fn run(job: &Stream) -> Result<ExitCode> {
    match job {
        Stream::Statistics(job) => statistics::run(job),
        Stream::Show(job) => show::run(job),
        Stream::Collect(job) => record::collect(job),
        Stream::Analysis(job) => crate::commands::sequences::run(job),
    }
}
