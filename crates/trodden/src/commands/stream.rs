//! `trodden show` for streams of paths and calls, from runs or from flight recorders. `trodden_recording::streams` records them.

use super::sequences::find_stream_to_read;
use crate::cli::ShowArguments;
use crate::notes::note;
use crate::output;
use crate::surroundings::{folders, source_folders};
use anyhow::{Context, Result, ensure};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_report::input_kind::InputKind;
use trodden_report::streams::{LastEventsReport, LastEventsRequest, ShownEvents, write_events};
use trodden_report::words::plural;

/// Default number of events to show from a run.
const DEFAULT_SHOWN_RUN_EVENTS: u64 = 100;
/// Default number of events to show per thread from a flight recording.
const DEFAULT_SHOWN_FLIGHT_EVENTS: u64 = 20;

pub fn show(job: &ShowArguments, file: &Path, kind: InputKind) -> Result<ExitCode> {
    InputKind::StreamLogs.reject_options(&[
        ("--to", job.to.is_some()),
        ("--interleave", job.interleave),
        ("--calls", job.calls),
        ("--depth", job.depth.is_some()),
        ("--core", job.core.is_some()),
    ])?;
    ensure!(kind != InputKind::EventText, kind.not_accepted_error(file, "show"));
    let number = |text: &str| text.trim_start_matches('#').parse::<u64>().ok();
    let from = job.from.as_deref().map(|text| number(text).with_context(|| format!("invalid event number `{text}` in --from")));
    let from = from.transpose()?.unwrap_or(0);
    let thread = job.thread.unwrap_or(0) as usize;
    let count_limit = job.count.unwrap_or(if job.json { 0 } else { DEFAULT_SHOWN_RUN_EVENTS });
    let mut out = BufWriter::new(output::text_or_json_writer(job.json));
    let range = ShownEvents { thread, from, count: count_limit, json: job.json, source: &source_folders() };
    let remaining = write_events(&find_stream_to_read(file, kind, "show")?, &range, &folders(), &mut out)?;
    out.flush()?;
    if let Some(length) = remaining.length {
        note(format_args!("event {from} does not exist: the thread has {}, numbered from 0", plural(length.into(), "event", "events")));
    }
    if let Some(next) = remaining.next {
        note(format_args!("more events follow. To show the next ones, pass `--from {next}`; to show all, pass `--count 0`"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the last events of each thread from flight recorder files.
pub fn show_last_events(job: &ShowArguments, files: &[PathBuf]) -> Result<ExitCode> {
    InputKind::StreamFiles.reject_options(&[
        ("--thread", job.thread.is_some()),
        ("--from", job.from.is_some()),
        ("--to", job.to.is_some()),
        ("--interleave", job.interleave),
        ("--calls", job.calls),
        ("--depth", job.depth.is_some()),
    ])?;
    let paths = usize::try_from(job.count.unwrap_or(DEFAULT_SHOWN_FLIGHT_EVENTS))?;
    let question = LastEventsRequest { files, paths, core: job.core.as_deref(), source: &source_folders() };
    let report = LastEventsReport::read(&question, &folders())?;
    output::print_result(job.json, || output::json_text(&report), || Ok(report.text()))?;
    Ok(ExitCode::SUCCESS)
}
