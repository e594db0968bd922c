//! `trodden waits`: recording who waits for whom, and explaining each wait as the difference of two execution paths.
//!
//! | file | what |
//! |---|---|
//! | `waits/record.rs` | running a program under the preload library |
//! | `waits/paths.rs` | paths that samples interrupted, by the streams of the same run |
//! | `waits/text.rs`, `waits/json.rs`, `waits/page.rs`, `waits/chrome.rs` | reports as text, JSON, a page and Chrome trace JSON |
//!
//! Recordings and traces of other tools are read by `trodden-waits-file`.

mod chrome;
mod json;
mod page;
mod paths;
mod record;
mod text;

pub use record::trial;
pub use trodden_waits_file::import::read_otf2_text;

use crate::cli::{Color, Waits, WaitsReport};
use crate::output::write_file;
use anyhow::Result;
use std::process::ExitCode;
use trodden_stored::decompress;
use trodden_waits_file::import;
use trodden_waits_file::recording::Recording;
use trodden_waits_file::replay::{ReportOptions, replay};
use trodden_waits_file::sample_paths::SamplePaths;
use trodden_waits_file::summary::WaitSummary;

/// Does what the command line says.
///
/// # Errors
/// The program cannot be started; the recording cannot be read.
pub fn run(job: &Waits, color: Color) -> Result<ExitCode> {
    match job {
        Waits::Record(job) => record::run(job),
        Waits::Report(job) => report(job, color),
    }
}

fn report(job: &WaitsReport, _color: Color) -> Result<ExitCode> {
    let options = ReportOptions {
        threshold: job.threshold,
        rule: job.rule,
        what_if: job.what_if.clone(),
        timeline: job.html.is_some() || job.chrome.is_some(),
    };
    let replayed = if !import::ctf::is_trace(&job.recording) && (job.recording.is_dir() || !job.recording.exists()) {
        let paths = job.paths.as_deref().map(paths::Paths::open).transpose()?;
        let paths = paths.map(|paths| Box::new(paths) as Box<dyn SamplePaths>);
        replay(&Recording::open(&job.recording)?, &options, paths)?
    } else {
        import::report(&job.recording, &options, decompress::read)?
    };
    let summary = WaitSummary::new(replayed, job.threshold);
    if let Some(path) = &job.html {
        let title = format!("Waiting time: {}", job.recording.display());
        write_file(path, page::page(&summary, &title).as_bytes())?;
    }
    if let Some(path) = &job.chrome {
        write_file(path, chrome::value(&summary).to_string().as_bytes())?;
    }
    if job.json {
        json::print(&summary)?;
    } else if job.html.is_none() && job.chrome.is_none() {
        text::print(&summary, job)?;
    }
    Ok(ExitCode::SUCCESS)
}
