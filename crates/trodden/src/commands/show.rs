//! `trodden show`: what a thread did, in order.

use super::trace;
use crate::cli::Show;
use anyhow::Result;
use std::process::ExitCode;
use trodden_report::input_kind::InputKind;

/// Shows it.
///
/// # Errors
/// There is no such file, or it has no such thread or place.
pub fn run(job: &Show) -> Result<ExitCode> {
    match InputKind::of(&job.file)? {
        InputKind::Trace => trace::show(job),
        other => Err(other.refused(&job.file, "show")),
    }
}
