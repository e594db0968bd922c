//! `trodden trace`: exact traces of programs that were not built for it.
//!
//! | file | what |
//! |---|---|
//! | `record.rs`, `record/`, `runs.rs`, `repeated.rs` | running a program with witnesses; whether runs repeat the first |
//! | `outputs.rs`, `fresh.rs`, `distribute.rs` | what runs write; a copy of the working folder for each; runs on other machines |
//! | `print_plan.rs` | a plan as text and JSON |
//! | `show.rs`, `find.rs`, `diff.rs`, `profile.rs`, `export.rs` | using a trace |
//! | `page.rs`, `page/` | calls one after the other on an HTML page |
//! | `doctor.rs` | which collectors work here |
//!
//! Placing witnesses and putting traces together: `trodden-distributed`.

mod collectors;
mod diff;
mod distribute;
mod doctor;
mod export;
mod find;
mod fresh;
mod outputs;
mod page;
mod print_plan;
mod profile;
mod record;
mod repeated;
mod runs;
mod show;

pub use doctor::collectors;

use crate::cli::Trace;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::ExitCode;
use trodden_trace::TraceFile;
use trodden_trace::command as tracer;

/// Carries the command out.
///
/// # Errors
/// A trace cannot be recorded or read.
pub fn run(job: &Trace) -> Result<ExitCode> {
    match job {
        Trace::Show(job) => show::run(job),
        Trace::Find(job) => find::run(job),
        Trace::Diff(job) => diff::run(job),
        Trace::Export(job) => export::run(job),
        Trace::Record(job) => tracer::in_tracer(|| record::run(job)),
        Trace::Work { folder, machine } => {
            tracer::in_this_process()?;
            distribute::work(folder, *machine)
        }
        Trace::Profile(job) => profile::run(job),
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
