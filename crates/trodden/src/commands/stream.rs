//! `trodden stream` and `trodden last`: streams of paths and calls, shown. They are recorded by `trodden_recording::streams`.

use crate::cli::{Last, Stream, StreamShow, StreamStatistics as Statistics};
use crate::notes::note;
use crate::output;
use crate::surroundings::source_folders;
use crate::surroundings::{folders, surroundings};
use anyhow::Result;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use trodden_recording::streams::record;
use trodden_report::streams::{EventRange, LastQuestion, LastReport, StreamStatistics, write_events};
use trodden_report::words::count;

/// `trodden stream`
///
/// # Errors
/// As of its parts.
pub fn run(job: &Stream) -> Result<ExitCode> {
    match job {
        Stream::Statistics(job) => statistics(job),
        Stream::Show(job) => show(job),
        Stream::Collect(job) => record::collect(&job.files, &surroundings()).map(|()| ExitCode::SUCCESS),
        Stream::Analysis(job) => crate::commands::sequences::run(job),
    }
}

fn statistics(job: &Statistics) -> Result<ExitCode> {
    let report = StreamStatistics::read(&job.run, &folders())?;
    output::print_found(job.json, || output::json_text(&report), || Ok(report.text()))?;
    Ok(ExitCode::SUCCESS)
}

fn show(job: &StreamShow) -> Result<ExitCode> {
    let mut out = BufWriter::new(output::text());
    let range = EventRange { thread: job.thread, from: job.from, count: job.count, source: &source_folders() };
    let remaining = write_events(&job.run, &range, &folders(), &mut out)?;
    out.flush()?;
    if let Some(length) = remaining.length {
        note(format_args!("there is no event from number {} on: the thread has {}", job.from, count(length.into())));
    }
    if let Some(next) = remaining.next {
        note(format_args!("there are more events: `--from {next}` shows the next ones, `--count 0` all"));
    }
    Ok(ExitCode::SUCCESS)
}

/// `trodden last`
///
/// # Errors
/// There are no stream files, or they cannot be read.
pub fn last(job: &Last) -> Result<ExitCode> {
    let question = LastQuestion { files: &job.files, paths: job.paths, core: job.core.as_deref(), source: &source_folders() };
    let report = LastReport::read(&question, &folders())?;
    output::print_found(job.json, || output::json_text(&report), || Ok(report.text()))?;
    Ok(ExitCode::SUCCESS)
}
