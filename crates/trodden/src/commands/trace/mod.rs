//! `trodden trace`: exact traces of programs that were not built for it.
//!
//! | file | what |
//! |---|---|
//! | `record.rs`, `record/`, `runs.rs`, `repeated.rs` | running a program with witnesses; whether runs repeat the first |
//! | `plan.rs`, `weights.rs` | which run watches what, and what that costs |
//! | `outputs.rs`, `fresh.rs`, `distribute.rs` | what runs write; a copy of the working folder for each; runs on other machines |
//! | `merge.rs`, `replay.rs`, `live.rs` | merging what each run saw; what a single run saw, while it runs |
//! | `model.rs`, `model/`, `imports.rs`, `code.rs` | machine code as the program of [`trodden_flow::witness`], and as the trace names it |
//! | `place.rs` | places of a trace: functions, lines, addresses |
//! | `returns.rs` | blocks that end at calls, which need not return |
//! | `explain.rs` | which step of an execution the graph lacks |
//! | `show.rs`, `find.rs`, `diff.rs`, `profile.rs`, `export.rs` | using a trace |
//! | `calls.rs`, `page.rs`, `page/` | calls one after the other; all of them on an HTML page |
//! | `doctor.rs` | which collectors work here |

mod calls;
mod code;
mod collectors;
mod diff;
mod distribute;
mod doctor;
mod explain;
mod export;
mod files;
mod find;
mod fresh;
mod imports;
mod jumps;
mod live;
mod merge;
mod model;
mod outputs;
mod page;
mod place;
mod plan;
mod profile;
mod record;
mod repeated;
mod replay;
mod returns;
mod runs;
mod show;
mod weights;

pub use doctor::collectors;

use crate::cli::Trace;
use crate::running::tracer;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::ExitCode;
use trodden_trace::TraceFile;

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
        Trace::Work { folder, machine } => tracer::in_this_process().and_then(|()| distribute::work(folder, *machine)),
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
