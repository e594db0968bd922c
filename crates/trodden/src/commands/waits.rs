//! `trodden waits`: recording who waits for whom, and explaining each wait as the difference of two execution paths.

use crate::cli::{Waits, WaitsRecord, WaitsReport};
use crate::context::context;
use crate::output::{self, print_json, write_file};
use crate::surroundings::folders;
use crate::temporary;
use anyhow::Result;
use std::env;
use std::fs;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use trodden_driver::assets::OwnLibrary;
use trodden_launch::process::exit_code;
use trodden_report::waits::paths::StreamPaths;
use trodden_report::waits::{chrome, json, page, text};
use trodden_stored::decompress;
use trodden_waits_file::import;
use trodden_waits_file::record::{RecordedProgram, Recorder};
use trodden_waits_file::recording::Recording;
use trodden_waits_file::replay::{ReportOptions, replay};
use trodden_waits_file::sample_paths::SamplePaths;
use trodden_waits_file::summary::WaitSummary;

/// Samples per second of processor time and thread. The kernel's tick is an upper bound.
const RATE: u32 = 1000;

/// The library that is preloaded.
const RECORDER: OwnLibrary = OwnLibrary {
    what: "recorder",
    file: trodden_waits_file::symbols::RECORDER,
    package: "trodden-waits-recorder",
    variable: "TRODDEN_WAITS_RECORDER",
};

/// Does what the command line says.
///
/// # Errors
/// The program cannot be started; the recording cannot be read.
pub fn run(job: &Waits) -> Result<ExitCode> {
    match job {
        Waits::Record(job) => record(job),
        Waits::Report(job) => report(job),
    }
}

fn record(job: &WaitsRecord) -> Result<ExitCode> {
    let program = RecordedProgram { command: &job.command, output: &job.output, rate: job.choices.rate.unwrap_or(RATE) };
    Ok(exit_code(program.run(&recorder()?)?))
}

/// Whether the recorder is there and loads into a program.
///
/// # Errors
/// It is missing, or the loader refuses it; says why.
pub fn trial() -> Result<String> {
    let recorder = recorder()?;
    recorder.trial(temporary::folder("trodden-waits-")?.path())?;
    Ok(format!("{} loads into programs", recorder.library.display()))
}

fn recorder() -> Result<Recorder> {
    Ok(Recorder { library: RECORDER.find_preloadable(context())?, others: env::var_os("LD_PRELOAD") })
}

fn report(job: &WaitsReport) -> Result<ExitCode> {
    let options = ReportOptions {
        threshold: job.threshold,
        rule: job.rule,
        what_if: job.what_if.clone(),
        timeline: job.html.is_some() || job.chrome.is_some(),
    };
    let replayed = if !import::ctf::is_trace(&job.recording) && (job.recording.is_dir() || !job.recording.exists()) {
        let paths = job.paths.as_deref().map(|run| StreamPaths::open(run, &folders())).transpose()?;
        let paths = paths.map(|paths| Box::new(paths) as Box<dyn SamplePaths>);
        replay(&Recording::open(&job.recording)?, &options, paths)?
    } else {
        import::report(&job.recording, &options, decompress::read)?
    };
    let summary = WaitSummary::new(replayed, job.threshold);
    if let Some(path) = &job.html {
        let title = format!("Waiting time: {}", job.recording.display());
        write_file(path, page::page(&summary, &title, &|file: &str| fs::read_to_string(file).ok()).as_bytes())?;
    }
    if let Some(path) = &job.chrome {
        write_file(path, chrome::value(&summary).to_string().as_bytes())?;
    }
    if job.json {
        print_json(&json::value(&summary))?;
    } else if job.html.is_none() && job.chrome.is_none() {
        let mut out = BufWriter::new(output::text());
        text::write(&mut out, &summary, job.top)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
