//! `trodden trace`, and how other commands handle traces. `trace/record.rs` records traces.

mod record;

use crate::cli::{DiffArguments, ExportArguments, ExportFormat, FindArguments, ReportArguments, ShowArguments, TraceCommand};
use crate::context::driver_context;
use crate::notes::note;
use crate::output::{self, OutputFile};
use crate::surroundings::recording_context;
use crate::temporary;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use trodden_distributed::calls::TraceFilter;
use trodden_distributed::differences::{TraceDiffOptions, find_trace_differences};
use trodden_distributed::files::TracedFiles;
use trodden_distributed::occurrences::find_place_occurrences;
use trodden_distributed::path_profile::build_path_profile;
use trodden_distributed::place::TraceLocation;
use trodden_driver::other_programs::checked_stdout;
use trodden_profile::{CollectedProfile, Run};
use trodden_recording::{ProfileDestination, deliver_profile, new_run_metadata};
use trodden_report::input_kind::InputKind;
use trodden_report::select::limit;
use trodden_report::trace::interleave::{InterleavingOptions, show_interleaved};
use trodden_report::trace::show::{TraceShowOptions, TraceView};
use trodden_report::trace::{diff, export, find, page, show};
use trodden_trace::command::{run_in_tracer_process, trace_in_this_process};
use trodden_trace::{CollectorKind, TraceFile, try_collector};
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;

pub fn run(job: &TraceCommand) -> Result<ExitCode> {
    match job {
        TraceCommand::Record(job) => run_in_tracer_process(|| record::run(job)),
        TraceCommand::Work { folder, machine } => {
            trace_in_this_process()?;
            record::run_worker(folder, *machine)
        }
    }
}

/// Opens a trace and prints notes about its recording.
fn open_trace_and_print_notes(path: &Path) -> Result<TraceFile> {
    let trace = TraceFile::open(path).with_context(|| format!("cannot open the trace {}", path.display()))?;
    for note in &trace.end().notes {
        crate::notes::note(format_args!("{}: {note}", path.display()));
    }
    Ok(trace)
}

/// `trodden report`: prints a trace's call tree, or writes a page.
pub fn report(job: &ReportArguments) -> Result<ExitCode> {
    InputKind::Trace.reject_options(&[
        ("--function", job.function.is_some()),
        ("--measure", job.measure.is_some()),
        ("--top", job.top.is_some()),
        ("--steps", job.steps.is_some()),
        ("--what-if", !job.what_if.is_empty()),
        ("--stream", job.stream.is_some()),
    ])?;
    let trace = open_trace_and_print_notes(&job.file)?;
    if let Some(file) = &job.html {
        let page = render_page(&trace, &TraceFilter::default())?;
        output::write_report(file, page.as_bytes(), "the page is")?;
        return Ok(ExitCode::SUCCESS);
    }
    let options =
        TraceShowOptions { view: TraceView::Tree, thread: None, from: None, to: None, depth: show::DEFAULT_DEPTH, json: job.json };
    write_trace_view(&trace, &options)?;
    Ok(ExitCode::SUCCESS)
}

/// `trodden show`: prints the blocks or the call tree of a trace, between two positions.
pub fn show(job: &ShowArguments, file: &Path) -> Result<ExitCode> {
    const DEFAULT_MAX_BLOCKS: u64 = 100;
    InputKind::Trace.reject_options(&[("--core", job.core.is_some())])?;
    let trace = open_trace_and_print_notes(file)?;
    let count = job.count.unwrap_or(if job.json || job.to.is_some() { 0 } else { DEFAULT_MAX_BLOCKS });
    if job.interleave {
        return show_threads_in_order(&trace, job, count);
    }
    let view = if job.calls { TraceView::Tree } else { TraceView::Blocks(count) };
    let (from, to, depth) = (job.from.clone(), job.to.clone(), job.depth.unwrap_or(show::DEFAULT_DEPTH));
    if let Some(next) = write_trace_view(&trace, &TraceShowOptions { view, thread: job.thread, from, to, depth, json: job.json })? {
        note(format_args!("more blocks follow. To show the next ones, pass `--from '#{next}'`; to show all, pass `--count 0`"));
    }
    Ok(ExitCode::SUCCESS)
}

fn show_threads_in_order(trace: &TraceFile, job: &ShowArguments, count: u64) -> Result<ExitCode> {
    ensure!(
        job.thread.is_none() || job.from.is_some(),
        "--interleave shows all threads, and --thread selects the one in which --from is searched. Leave out --thread, or pass --from"
    );
    let count = if count == 0 { u64::MAX } else { count };
    let options =
        InterleavingOptions { from: job.from.clone(), thread: job.thread, count, depth: job.depth.unwrap_or(show::DEFAULT_DEPTH) };
    let mut out = BufWriter::new(output::text_writer());
    let next = show_interleaved(&mut out, trace, &options)?;
    out.flush()?;
    if let Some((thread, number)) = next {
        note(format_args!(
            "more blocks follow. To show the next ones, pass `--thread {} --from '#{number}'`; to show all, pass `--count 0`",
            thread.0
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_trace_view(trace: &TraceFile, options: &TraceShowOptions) -> Result<Option<u64>> {
    let mut out = BufWriter::new(output::text_or_json_writer(options.json));
    let next = show::show(&mut out, trace, options)?;
    out.flush()?;
    Ok(next)
}

/// `trodden find`: prints the executions of a place in the code. Returns status 1 if there are any and `--fail` is given.
pub fn find(job: &FindArguments) -> Result<ExitCode> {
    InputKind::Trace.reject_options(&[("--events", job.events)])?;
    let trace = open_trace_and_print_notes(&job.file)?;
    let place = TraceLocation::parse(&job.expression, &trace)?;
    let all = find_place_occurrences(&trace, &place, job.thread, limit(output::max_results(job.top, job.json)))?;
    if job.json {
        output::print_json(&find::json(&all))?;
    } else {
        let mut out = BufWriter::new(output::text_writer());
        find::write(&mut out, &all, place.nth.is_some())?;
        out.flush()?;
    }
    Ok(if job.fail && !all.found.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `trodden diff`: prints where two traces diverge. Returns status 1 if they diverge and `--fail` is given.
pub fn diff(job: &DiffArguments) -> Result<ExitCode> {
    let other_options = [
        ("--across-builds", job.across_builds),
        ("--min-change", job.min_change.is_some()),
        ("--counts", job.counts),
        ("--sequence", job.sequence),
    ];
    InputKind::Trace.reject_options(&other_options)?;
    let (left, right) = (open_trace_and_print_notes(&job.before)?, open_trace_and_print_notes(&job.after)?);
    let options = TraceDiffOptions { ignore: job.ignore.clone(), thread: job.thread, top: job.top };
    let found = find_trace_differences(&left, &right, &options)?;
    if job.json {
        output::print_json(&diff::json(&found))?;
    } else {
        let mut out = BufWriter::new(output::text_writer());
        diff::write(&mut out, &found, job.top)?;
        out.flush()?;
    }
    Ok(if job.fail && !found.differences.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub fn export(job: &ExportArguments) -> Result<ExitCode> {
    let trace = open_trace_and_print_notes(&job.file)?;
    let left_out = TraceFilter::new(&trace, &job.ignore, job.thread)?;
    let is_json = job.format == ExportFormat::Chrome;
    export_to_file_or_stdout(job.output.as_deref(), is_json, |out| match job.format {
        ExportFormat::Folded => export::write_folded(&trace, &left_out, out),
        ExportFormat::Chrome => export::write_chrome_trace(&trace, &left_out, out),
        ExportFormat::Addresses => export::write_addresses(&trace, &left_out, out),
        _ => Ok(out.write_all(render_page(&trace, &left_out)?.as_bytes())?),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output or to a file. The file appears only when it is complete.
fn export_to_file_or_stdout(file: Option<&Path>, is_json: bool, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    if let Some(file) = output::destination(file) {
        let mut out = OutputFile::create(file)?;
        write(&mut out)?;
        return out.finish();
    }
    let mut out = BufWriter::new(output::text_or_json_writer(is_json));
    write(&mut out)?;
    Ok(out.flush()?)
}

fn render_page(trace: &TraceFile, left_out: &TraceFilter) -> Result<String> {
    let source = |path: &str| fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    page::page(trace, left_out, &TracedFiles::from_trace(trace), &source)
}

/// `trodden import`: stores the path profile of a trace.
pub fn import(file: &Path, destination: &ProfileDestination) -> Result<()> {
    let trace = open_trace_and_print_notes(file)?;
    let recording = recording_context();
    let profile = build_path_profile(&trace, Run { suite: destination.suite.clone(), ..new_run_metadata() })?;
    note("the profile has paths of machine code, whose control flow graphs are taken from the trace");
    deliver_profile(&CollectedProfile { profile, problems: Vec::new() }, destination, &recording).map(drop)
}

/// Tries each collector on this program or on a small program that it compiles. Returns the names of the collectors that work. If none
/// works, fails with the error of the first one.
pub fn list_names_of_working_collectors() -> Result<String> {
    let tried = CollectorKind::ALL.map(|kind| (kind, try_trace_collector(kind)));
    let working = tried.iter().filter(|(_, result)| result.is_ok()).map(|(kind, _)| match kind {
        CollectorKind::Compiled => format!("{} (programs built with sleds for witnesses)", kind.collector().name()),
        _ => kind.collector().name().to_owned(),
    });
    let working: Vec<String> = working.collect();
    if let (true, Some((_, Err(error)))) = (working.is_empty(), tried.into_iter().next()) {
        return Err(error);
    }
    Ok(working.join(", "))
}

fn try_trace_collector(kind: CollectorKind) -> Result<()> {
    if kind != CollectorKind::Compiled {
        return try_collector(kind, &std::env::current_exe().context("cannot find trodden's own executable file")?);
    }
    let place = temporary::create_temporary_folder("trodden-doctor-")?;
    let (source, program) = (place.path().join("trial.c"), place.path().join("trial"));
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let mut compile = Command::new(driver_context().executable_folder()?.join("trodden"));
    compile.arg("cc").env(SETTINGS_VARIABLE, "observe=trace").arg(&source).arg("-o").arg(&program).current_dir(place.path());
    let output = compile.output().context("cannot run `trodden cc`")?;
    checked_stdout(output, "`trodden cc` failed")?;
    try_collector(kind, &program)
}
