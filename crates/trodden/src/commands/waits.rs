//! `trodden waits`: recording who waits for whom, and explaining each wait as the difference of two execution paths.
//!
//! | file | what |
//! |---|---|
//! | `waits/record.rs` | running a program under the preload library |
//! | `waits/recording.rs`, `waits/process_file.rs`, `waits/ranks.rs`, `waits/threads_file.rs` | a recording on disk |
//! | `waits/clock.rs`, `waits/sync.rs` | ticks of all processes to one time; clocks of several hosts |
//! | `waits/symbols.rs`, `waits/codes.rs` | addresses to functions and lines; code blocks |
//! | `waits/blocks.rs` | what a thread did between two calls, from samples and stacks |
//! | `waits/convert.rs`, `waits/replay.rs` | records to calls, in order of time through the analysis |
//! | `waits/import.rs`, `waits/import/` | traces of other tools: OTF2, the scheduler's events of perf, Chrome trace JSON |
//! | `waits/summary.rs`, `waits/causes.rs` | what a report says; `waits/text.rs`, `waits/json.rs`, `waits/page.rs`: how |
//! | `waits/timeline.rs`, `waits/chrome.rs` | what each location did when; the same as Chrome trace JSON |

mod blocks;
mod causes;
mod chrome;
mod clock;
mod codes;
mod convert;
mod import;
mod json;
mod page;
mod paths;
mod process_file;
mod ranks;
mod record;
mod recording;
mod replay;
mod summary;
mod symbols;
mod sync;
mod text;
mod threads_file;
mod timeline;

pub use import::read_otf2_text;

pub use record::trial;

use crate::cli::{Color, Waits, WaitsReport};
use crate::output::write_file;
use anyhow::Result;
use std::process::ExitCode;

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
    let replayed = if !import::ctf::is_trace(&job.recording) && (job.recording.is_dir() || !job.recording.exists()) {
        replay::replay(&recording::Recording::open(&job.recording)?, job)?
    } else {
        import::report(&job.recording, job)?
    };
    let summary = summary::WaitSummary::new(replayed, job);
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
