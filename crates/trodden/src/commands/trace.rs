//! `trodden trace`: exact traces of programs that were not built for it.
//!
//! `trace/record.rs`: the options of a recording, and runs of it on another machine.

mod record;

use crate::cli::{Trace, TraceDiff, TraceExport, TraceFind, TraceFormat, TraceProfile, TraceShow};
use crate::context::context;
use crate::notes::note;
use crate::output;
use crate::surroundings::surroundings;
use crate::temporary;
use anyhow::{Context, Result};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use trodden_distributed::calls::LeftOut;
use trodden_distributed::differences::{DiffOptions, differences};
use trodden_distributed::files::Files;
use trodden_distributed::occurrences::occurrences;
use trodden_distributed::path_profile::path_profile;
use trodden_distributed::place::TraceLocation;
use trodden_driver::other_programs::succeeded;
use trodden_profile::{Collected, Run};
use trodden_recording::{deliver, one_run};
use trodden_report::trace::show::{TraceShowOptions, TraceView};
use trodden_report::trace::{diff, export, find, page, show};
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;
use trodden_trace::command::{in_this_process, in_tracer};
use trodden_trace::{CollectorKind, TraceFile, try_collector};

/// Carries the command out.
///
/// # Errors
/// A trace cannot be recorded or read.
pub fn run(job: &Trace) -> Result<ExitCode> {
    match job {
        Trace::Show(job) => run_show(job),
        Trace::Find(job) => run_find(job),
        Trace::Diff(job) => run_diff(job),
        Trace::Export(job) => run_export(job),
        Trace::Record(job) => in_tracer(|| record::run(job)),
        Trace::Work { folder, machine } => {
            in_this_process()?;
            record::work(folder, *machine)
        }
        Trace::Profile(job) => run_profile(job),
    }
}

/// Opens a trace, and says what is to be known of it.
fn open(path: &Path) -> Result<TraceFile> {
    let trace = TraceFile::open(path).with_context(|| format!("cannot open the trace {}", path.display()))?;
    for note in &trace.end().notes {
        crate::notes::note(format_args!("{}: {note}", path.display()));
    }
    Ok(trace)
}

fn run_show(job: &TraceShow) -> Result<ExitCode> {
    let trace = open(&job.trace)?;
    let view = match (job.addresses, job.blocks) {
        (true, _) => TraceView::Addresses,
        (false, true) => TraceView::Blocks,
        (false, false) => TraceView::Tree,
    };
    let (from, to) = (job.from.clone(), job.to.clone());
    let options = TraceShowOptions { view, thread: job.thread, from, to, depth: job.depth, json: job.json };
    let mut out = BufWriter::new(output::text_or_json(job.json));
    show::show(&mut out, &trace, &options)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Exit status 1 if the place does not occur.
fn run_find(job: &TraceFind) -> Result<ExitCode> {
    let trace = open(&job.trace)?;
    let place = TraceLocation::parse(&job.place, &trace)?;
    let all = occurrences(&trace, &place, job.thread, job.top)?;
    if job.json {
        output::print_json(&find::json(&all))?;
    } else {
        let mut out = BufWriter::new(output::text());
        find::write(&mut out, &all, place.nth.is_some())?;
        out.flush()?;
    }
    Ok(if all.found.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Exit status 1 if the traces differ.
fn run_diff(job: &TraceDiff) -> Result<ExitCode> {
    let (left, right) = (open(&job.left)?, open(&job.right)?);
    let options = DiffOptions { ignore: job.ignore.clone(), ignore_file: job.ignore_file.clone(), thread: job.thread, top: job.top };
    let found = differences(&left, &right, &options)?;
    if job.json {
        output::print_json(&diff::json(&found))?;
    } else {
        let mut out = BufWriter::new(output::text());
        diff::write(&mut out, &found, job.top)?;
        out.flush()?;
    }
    Ok(if found.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_export(job: &TraceExport) -> Result<ExitCode> {
    let trace = open(&job.trace)?;
    let left_out = LeftOut::new(&trace, &job.ignore, &job.ignore_file, job.thread)?;
    let mut out = BufWriter::new(output::text_or_json(job.format == TraceFormat::Chrome));
    match job.format {
        TraceFormat::Folded => export::folded(&trace, &left_out, &mut out)?,
        TraceFormat::Chrome => export::chrome(&trace, &left_out, &mut out)?,
        TraceFormat::Html => {
            let source = |path: &str| fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let page = page::page(&trace, &left_out, &Files::of_trace(&trace), &source)?;
            out.write_all(page.as_bytes())?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn run_profile(job: &TraceProfile) -> Result<ExitCode> {
    let trace = open(&job.trace)?;
    let profile = path_profile(&trace, Run { suite: job.destination.suite.clone(), ..one_run() })?;
    note("its paths are those of machine code: graphs from the trace");
    deliver(&Collected { profile, problems: Vec::new() }, &job.destination.value(), &surroundings())?;
    Ok(ExitCode::SUCCESS)
}

/// Names the collectors that work here: each is tried on this program, or on one that is compiled for it.
///
/// # Errors
/// None does; the reason of the first.
pub fn collectors() -> Result<String> {
    let tried = CollectorKind::ALL.map(|kind| (kind, try_one(kind)));
    let working = tried.iter().filter(|(_, result)| result.is_ok()).map(|(kind, _)| match kind {
        CollectorKind::Compiled => format!("{} (programs built with room for witnesses)", kind.collector().name()),
        _ => kind.collector().name().to_owned(),
    });
    let working: Vec<String> = working.collect();
    if let (true, Some((_, Err(error)))) = (working.is_empty(), tried.into_iter().next()) {
        return Err(error);
    }
    Ok(working.join(", "))
}

fn try_one(kind: CollectorKind) -> Result<()> {
    if kind != CollectorKind::Compiled {
        return try_collector(kind, &std::env::current_exe().context("this program cannot be found")?);
    }
    let place = temporary::folder("trodden-doctor-")?;
    let (source, program) = (place.path().join("trial.c"), place.path().join("trial"));
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let mut compile = Command::new(context().own_folder()?.join("trodden"));
    compile.arg("cc").env(SETTINGS_VARIABLE, "observe=trace").arg(&source).arg("-o").arg(&program).current_dir(place.path());
    let output = compile.output().context("trodden cc cannot be run")?;
    succeeded(output, "trodden cc fails")?;
    try_collector(kind, &program)
}
