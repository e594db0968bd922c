//! `trodden show`: prints what threads executed, in order.

use super::{stream, trace};
use crate::cli::ShowArguments;
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_report::input_kind::InputKind;
use trodden_stored::streams::find_newest_flight_recording;

/// Shows a run, a trace or flight recordings. The default is the newest recording.
pub fn run(job: &ShowArguments) -> Result<ExitCode> {
    let files = if job.files.is_empty() { vec![find_newest_flight_recording()?] } else { job.files.clone() };
    let kinds = files.iter().map(|file| InputKind::detect(file)).collect::<Result<Vec<_>>>()?;
    if kinds.iter().all(|kind| *kind == InputKind::StreamFiles) {
        return stream::show_last_events(job, &files);
    }
    ensure!(
        files.len() == 1,
        "only files of the flight recorder can be shown together, but {} is {}. Show this file separately",
        files[0].display(),
        kinds[0].noun_phrase()
    );
    match kinds[0] {
        InputKind::Trace => trace::show(job, &files[0]),
        InputKind::Profile | InputKind::StreamLogs | InputKind::EventText => stream::show(job, &files[0], kinds[0]),
        other => Err(other.not_accepted_error(&files[0], "show")),
    }
}
