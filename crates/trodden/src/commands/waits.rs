//! `trodden waits`: records which ranks or threads wait for which. `trodden report` explains each wait as a difference between two paths.

use crate::cli::{ExportArguments, ReportArguments, WaitsCommand, WaitsRecordArguments};
use crate::context::driver_context;
use crate::output::{self, print_json, write_or_print, write_report};
use crate::surroundings::folders;
use crate::temporary;
use anyhow::{Result, ensure};
use std::env;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use trodden_driver::assets::TroddenLibrary;
use trodden_driver::other_programs::find_program;
use trodden_launch::process::{cannot_run_error, exit_code};
use trodden_report::input_kind::InputKind;
use trodden_report::select::limit;
use trodden_report::waits::paths::StreamPaths;
use trodden_report::waits::{chrome, expression, json, page, text};
use trodden_stored::decompress;
use trodden_waits_file::import;
use trodden_waits_file::record::{RecordedProgram, WaitsRecorder};
use trodden_waits_file::recording::WaitsRecording;
use trodden_waits_file::replay::{ReportOptions, replay};
use trodden_waits_file::sample_paths::SamplePaths;
use trodden_waits_file::summary::WaitSummary;

/// Default number of samples per second of a thread's processor time. The kernel's tick rate is an upper bound.
const DEFAULT_SAMPLES_PER_SECOND: u32 = 1000;

/// The library that is preloaded into the program.
const WAITS_RECORDER_LIBRARY: TroddenLibrary = TroddenLibrary {
    kind: "recorder",
    file: trodden_waits_file::symbols::RECORDER_FILE_NAME,
    package: "trodden-waits-recorder",
    variable: "TRODDEN_WAITS_RECORDER",
};

pub fn run(job: &WaitsCommand) -> Result<ExitCode> {
    match job {
        WaitsCommand::Record(job) => record(job),
    }
}

fn record(job: &WaitsRecordArguments) -> Result<ExitCode> {
    // The new recording replaces an older one, so the command is checked first.
    let program = find_program(driver_context(), &job.command[0]).and_then(|file| fs::metadata(file).ok());
    let refused = program.map_or(Some(io::ErrorKind::NotFound), |found| {
        let is_executable = found.is_file() && found.permissions().mode() & 0o111 != 0;
        (!is_executable).then_some(io::ErrorKind::PermissionDenied)
    });
    if let Some(kind) = refused {
        return Err(cannot_run_error(&job.command[0], kind.into()).into());
    }
    let program =
        RecordedProgram { command: &job.command, output: &job.output, rate: job.choices.rate.unwrap_or(DEFAULT_SAMPLES_PER_SECOND) };
    Ok(exit_code(program.run(&find_waits_recorder()?)?))
}

/// Loads the recorder into a program. Returns a description of the recorder.
pub fn try_waits_recorder() -> Result<String> {
    let recorder = find_waits_recorder()?;
    recorder.check_recorder_can_be_preloaded(temporary::create_temporary_folder("trodden-waits-")?.path())?;
    Ok(format!("{} loads into programs", recorder.library.display()))
}

fn find_waits_recorder() -> Result<WaitsRecorder> {
    Ok(WaitsRecorder { library: WAITS_RECORDER_LIBRARY.find_preloadable(driver_context())?, preloaded: env::var_os("LD_PRELOAD") })
}

pub fn report(job: &ReportArguments) -> Result<ExitCode> {
    InputKind::Waits.reject_options(&[
        ("--function", job.function.is_some()),
        ("--measure", job.measure.is_some()),
        ("--steps", job.steps.is_some()),
    ])?;
    let expand = job.choices.explain;
    ensure!(!expand || job.html.is_none(), "--explain applies only to text and JSON output. Omit --explain or --html");
    let options = ReportOptions {
        what_if: job.what_if.clone(),
        has_timeline: job.html.is_some(),
        has_expressions: expand,
        ..ReportOptions::default()
    };
    let summary = analyse_recording(&job.file, &options, job.stream.as_deref())?;
    if let Some(path) = &job.html {
        let title = format!("Waiting time: {}", job.file.display());
        let page = page::page(&summary, &title, &|file: &str| fs::read_to_string(file).ok());
        write_report(path, page.as_bytes(), "the page is")?;
    } else if job.json {
        let mut value = json::wait_report(&summary);
        if expand {
            value["expressions"] = expression::json(&summary);
        }
        print_json(&value)?;
    } else {
        let mut out = BufWriter::new(output::text_writer());
        let top = limit(output::max_results(job.top, false));
        text::write(&mut out, &summary, top)?;
        if expand {
            expression::write(&mut out, &summary, top)?;
        }
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn export(job: &ExportArguments) -> Result<ExitCode> {
    let summary = analyse_recording(&job.file, &ReportOptions { has_timeline: true, ..ReportOptions::default() }, None)?;
    write_or_print(job.output.as_deref(), chrome::chrome_trace(&summary).to_string().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn analyse_recording(file: &Path, options: &ReportOptions, stream: Option<&str>) -> Result<WaitSummary> {
    let replayed = if file.is_dir() && !import::ctf::is_ctf_trace_folder(file) {
        let paths = stream.map(|run| StreamPaths::open(run, &folders())).transpose()?;
        let paths = paths.map(|paths| Box::new(paths) as Box<dyn SamplePaths>);
        replay(&WaitsRecording::open(file)?, options, paths)?
    } else {
        ensure!(
            stream.is_none(),
            "--stream applies only to recordings of `trodden waits`, but {} is a trace from another tool. Omit --stream",
            file.display()
        );
        import::analyse_trace(file, options, decompress::read)?
    };
    Ok(WaitSummary::new(replayed, options.threshold))
}
