//! `trodden stream statistics`: how long streams are, and what they hold.

use super::files;
use super::told::maps;
use crate::cli::StreamStatistics;
use crate::output;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use trodden_profile::stream::{Nesting, PathRole, Places, Step, StreamLog, ThreadLog};
use trodden_report::words::count;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    logs: Vec<LogReport>,
}

#[derive(Serialize)]
struct LogReport {
    file: PathBuf,
    image: PathBuf,
    bytes: u64,
    is_cut: bool,
    threads: Vec<ThreadReport>,
}

#[derive(Default, Serialize)]
struct ThreadReport {
    process: u32,
    thread: u32,
    /// Process that it was forked from.
    parent: Option<u32>,
    events: u64,
    lost: u64,
    /// Frames that began.
    calls: u64,
    /// Paths that ended, of all kinds.
    paths: u64,
    /// Arrivals at calls that might not return.
    arrivals: u64,
    /// Frames that exceptions and `longjmp` unwound.
    unwound: u64,
    deepest: usize,
    /// Frames that went, or came, without a word: by switched stacks, mostly.
    vanished: u64,
    unseen: u64,
}

/// Prints them.
///
/// # Errors
/// There are no streams, or they cannot be read.
pub fn run(job: &StreamStatistics) -> Result<ExitCode> {
    let mut report = Report { schema_version: SCHEMA_VERSION, logs: Vec::new() };
    for file in files::logs(&job.run)? {
        let log = StreamLog::open(&file)?;
        let profile = maps(log.head())?;
        let places = Places::new(log.head(), &profile.images[0]);
        let threads = log.threads().iter().map(|t| of_thread(&log, t, &places)).collect::<Result<_>>()?;
        let bytes = std::fs::metadata(&file)?.len();
        report.logs.push(LogReport { image: log.head().image_path.clone(), bytes, is_cut: log.is_cut(), threads, file });
    }
    match job.json {
        true => output::print(&output::json_text(&report)?)?,
        false => output::print_text(&text(&report))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn of_thread(log: &StreamLog, thread: &ThreadLog, places: &Places) -> Result<ThreadReport> {
    let (process, number) = (thread.key.process, thread.key.thread);
    let mut report = ThreadReport {
        process,
        thread: number,
        parent: thread.parent,
        events: thread.events,
        lost: thread.lost,
        ..ThreadReport::default()
    };
    let mut nesting = Nesting::new(places, true);
    log.visit(thread, 0, |event| {
        match nesting.feed(event) {
            Step::Entered(_) => report.calls += 1,
            Step::Path { role: PathRole::Call, .. } => report.arrivals += 1,
            Step::Path { .. } => report.paths += 1,
            Step::Unwound(frames) => report.unwound += frames as u64,
            Step::Unknown => {}
        }
        report.deepest = report.deepest.max(nesting.frames().len());
        true
    })?;
    (report.vanished, report.unseen) = (nesting.unclear().vanished, nesting.unclear().unseen);
    Ok(report)
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let mut number = 0;
    for log in &report.logs {
        let events: u64 = log.threads.iter().map(|t| t.events).sum();
        let each = if events == 0 { 0.0 } else { log.bytes as f64 / events as f64 };
        let _ = writeln!(
            out,
            "{}: {} events in {} bytes ({each:.3} bytes an event){}",
            log.image.display(),
            count(events.into()),
            count(log.bytes.into()),
            if log.is_cut { "; the end of the log is cut off" } else { "" }
        );
        let _ = writeln!(out, "  thread  process/thread       events        calls        paths     arrivals  unwound  deepest  lost");
        for t in &log.threads {
            let _ = writeln!(
                out,
                "  {number:>6}  {:<14} {:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>5}",
                format!("{}/{}", t.process, t.thread),
                count(t.events.into()),
                count(t.calls.into()),
                count(t.paths.into()),
                count(t.arrivals.into()),
                count(t.unwound.into()),
                t.deepest,
                t.lost
            );
            if t.vanished + t.unseen > 0 {
                let _ =
                    writeln!(out, "          frames that went without a word: {}, that were not seen to begin: {}", t.vanished, t.unseen);
            }
            number += 1;
        }
    }
    out
}
