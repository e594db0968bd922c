//! The commands, each in a file or folder of its own.
//!
//! | file | contents |
//! |---|---|
//! | `build.rs`, `cargo.rs` | builds whose compilers are the drivers; `cargo trodden` |
//! | `record.rs` | running a program and storing its profile |
//! | `stream.rs`, `sequences.rs` | showing streams of paths and calls, and flight recordings; queries on streams |
//! | `report.rs`, `show.rs`, `find.rs`, `diff.rs`, `export.rs` | one command each, for profiles; other files go to `trace.rs` and others |
//! | `annotate.rs` | source with one path marked |
//! | `runs.rs`, `merge.rs` | listing and merging profiles |
//! | `advise.rs`, `isolate.rs`, `untested.rs`, `suite/`, `coverage/` | advice, failing runs, untested paths, tests |
//! | `fleet.rs` | reports of untested paths from many machines |
//! | `pgo.rs`, `instrument.rs` | faster programs; variants without sources |
//! | `copies.rs` | recording by several copies of a program |
//! | `import.rs` | storing data that was recorded without `trodden record` |
//! | `simulate.rs` | the model of the hardware path profiler |
//! | `trace.rs`, `trace/` | recording exact traces of unmodified programs; other commands on traces |
//! | `waits.rs` | recording waits; other commands on such recordings |
//! | `info.rs`, `cache.rs`, `doctor.rs` | descriptions of files, the unit cache, checks of the installation |
//! | `remarks.rs` | notes that reports share |
//! | `drivers.rs` | links to the compiler drivers |

mod advise;
mod annotate;
mod build;
mod cache;
mod cargo;
pub mod copies;
mod coverage;
mod diff;
mod doctor;
mod drivers;
mod export;
mod find;
mod fleet;
mod import;
mod info;
mod instrument;
mod isolate;
mod merge;
mod pgo;
mod record;
mod remarks;
mod report;
mod runs;
mod segments;
mod sequences;
mod show;
pub mod simulate;
mod stream;
mod suite;
mod trace;
mod untested;
mod waits;

pub use cargo::run as cargo;
pub use sequences::find_stream_to_read;
pub use untested::{SchemeComparisonRequest, compare_schemes, show_field_counts_of_hot_paths};

use crate::cli::{Cli, Command};
use crate::context::driver_context;
use crate::last_store;
use anyhow::Result;
use std::process::ExitCode;
use trodden_console::arguments::simulate::SimulateModel;
use trodden_driver::cc;
use trodden_driver::compile_step::SourceLanguage;

/// Runs a command. If the command stores runs, remembers the location of its run store.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let stores_runs = matches!(cli.command, Command::Record(_) | Command::Import(_) | Command::Suite(_));
    let done = dispatch(cli);
    if stores_runs {
        last_store::remember_current_store();
    }
    done
}

fn dispatch(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Cc { arguments } => cc::drive(driver_context(), SourceLanguage::C, arguments),
        Command::Cxx { arguments } => cc::drive(driver_context(), SourceLanguage::Cxx, arguments),
        Command::Build(build) => build::run(&build),
        Command::Pgo(job) => pgo::run(&job),
        Command::Record(record) => record::run(&record),
        Command::Simulate(job) => simulate::run(&job.options, &SimulateModel::default()),
        Command::Import(job) => import::run(&job),
        Command::Report(job) => report::run(&job, cli.color),
        Command::Annotate(job) => annotate::run(&job, cli.color),
        Command::Advise(job) => advise::run(&job, cli.color),
        Command::Find(job) => find::run(&job, cli.color),
        Command::Show(job) => show::run(&job),
        Command::Segments(job) => segments::run(&job, cli.color),
        Command::Isolate(job) => isolate::run(&job, cli.color),
        Command::Untested(job) => untested::run(&job, cli.color),
        Command::Fleet(job) => fleet::run(&job, cli.color),
        Command::Export(job) => export::run(&job),
        Command::Coverage(job) => coverage::run(&job),
        Command::Suite(job) => suite::run(&job),
        Command::Waits(job) => waits::run(&job),
        Command::Runs(job) => runs::run(&job),
        Command::Merge(job) => merge::run(&job),
        Command::Diff(job) => diff::run(&job),
        Command::Instrument(job) => instrument::run(&job),
        Command::Info(info) => info::run(&info),
        Command::Trace(job) => trace::run(&job),
        Command::Cache(job) => cache::run(&job),
        Command::Doctor { json } => doctor::run(json),
        Command::Repeatable { json, runs, command } => copies::check_repeatable(&command, runs, json),
        Command::Copy { folder, copy } => copies::run_instrumented_copy(&folder, copy),
        Command::Drivers { folder } => drivers::run(folder),
    }
}
