//! `trodden show`: what a thread did, in order.

use super::{stream, trace};
use crate::cli::Show;
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_report::input_kind::InputKind;
use trodden_stored::streams::newest_recording;

/// Shows it.
///
/// # Errors
/// There is no such file, it has no such thread or place, or it is of a kind that is not shown.
pub fn run(job: &Show) -> Result<ExitCode> {
    let files = if job.files.is_empty() { vec![newest_recording()?] } else { job.files.clone() };
    let kinds = files.iter().map(|file| InputKind::of(file)).collect::<Result<Vec<_>>>()?;
    if kinds.iter().all(|kind| *kind == InputKind::StreamFiles) {
        return stream::last(job, &files);
    }
    ensure!(files.len() == 1, "several files are shown only of flight recorders, and {} is {}", files[0].display(), kinds[0].phrase());
    match kinds[0] {
        InputKind::Trace => trace::show(job, &files[0]),
        InputKind::Profile | InputKind::StreamLogs | InputKind::EventText => stream::show(job, &files[0], kinds[0]),
        other => Err(other.refused(&files[0], "show")),
    }
}
