//! The command `trodden` and its other names. Thin: algorithms and formats are in the other crates.
//!
//! | file | what |
//! |---|---|
//! | `cli.rs` | syntax of the command line |
//! | `experiment.rs` | from settings of builds to the file that the plugin reads |
//! | `cc.rs`, `cc/arguments.rs` | compiler drivers |
//! | `link.rs`, `recipe.rs` | linking; what is kept of a link |
//! | `rebuild.rs`, `frames.rs`, `instrument.rs` | other variants of a program, without its sources |
//! | `loops/` | hot loops' machine code, without and with counting |
//! | `lto.rs` | whole programs optimised, then instrumented |
//! | `build.rs`, `events.rs` | running a build; what its drivers did |
//! | `cargo.rs`, `rust.rs` | `cargo trodden`; standing in for rustc's linker |
//! | `record.rs` | running a program and storing its profile |
//! | `watch.rs` | programs that act at the end of paths that match an expression |
//! | `programs.rs` | storing each program that a command runs as a run of a suite |
//! | `sample.rs` | bursts: switching the counting of sampled programs on and off |
//! | `profiles.rs`, `reports.rs`, `runs.rs` | stored profiles: naming, showing, listing, merging, comparing them |
//! | `find.rs` | paths that run through given places |
//! | `suite/` | tests as runs; redundant tests, orders of tests |
//! | `advise.rs`, `facts.rs` | advice from a profile; what units compute, from their bitcode |
//! | `residual.rs` | untested paths: what the field takes and tests do not |
//! | `field.rs`, `field/` | reports of untested paths from many machines |
//! | `simulate/` | the model of the hardware path profiler on programs that QEMU runs, and on recorded branches |
//! | `sequences/` | questions asked of sequences of paths and calls |
//! | `import.rs` | profiles of branches that hardware recorded |
//! | `profdata.rs`, `cc/pgo.rs` | LLVM's profiles, for `-fprofile-use` and `llvm-cov`; builds that collect for them |
//! | `coverage/` | coverage by `llvm-cov` of a profile's own counts; paths beside it |
//! | `info.rs`, `libraries.rs` | what is known of a program |
//! | `graph/` | the numbering algorithms on a graph from a file; functions' graphs |
//! | `output.rs` | standard output, in which names do not steer terminals |
//! | `plan/`, `copies/` | dividing the counting among copies of a program; building, running and adding up copies |
//! | `stream/` | sequences of paths and calls; flight recorders |
//! | `trace/` | exact traces of programs that were not built for it |
//! | `waits.rs`, `waits/` | waiting time: recording it, and the code that causes it |
//! | `store.rs` | size of the unit store, and pruning it |
//! | `doctor.rs` | is everything there |
//! | `assets.rs`, `toolchain.rs` | what trodden brings along; where LLVM is |
#![forbid(unsafe_code)]

mod advise;
mod assets;
mod branches;
mod build;
mod cargo;
pub mod cc;
mod cli;
mod copies;
mod coverage;
mod doctor;
mod events;
mod experiment;
mod facts;
mod field;
mod find;
mod frames;
mod git;
mod graph;
mod import;
mod info;
mod instrument;
mod interesting;
mod isolate;
mod libraries;
mod link;
mod loops;
mod lto;
mod manual;
mod notes;
mod output;
mod pgo;
mod plan;
mod profdata;
mod profiles;
mod programs;
mod rebuild;
mod recipe;
mod record;
mod reports;
mod residual;
mod runs;
mod rust;
mod sample;
mod sequences;
mod simulate;
mod stand_ins;
mod store;
mod stream;
mod suite;
mod toolchain;
mod trace;
mod waits;
mod watch;

use anyhow::Result;
use clap::FromArgMatches;
use cli::{Cli, Command};
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Exit status when trodden itself fails.
const FAILED: u8 = 2;

/// Runs the command under the name by which it was called.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let name = &*called.to_string_lossy().into_owned();
    match run(name, arguments) {
        Ok(status) => status,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            notes::fail(notes::reasons(&error));
            ExitCode::from(FAILED)
        }
    }
}

fn run(name: &str, arguments: Vec<OsString>) -> Result<ExitCode> {
    let rest = |from: usize| arguments.get(from..).unwrap_or_default().to_vec();
    match name {
        "trodden-cc" => return cc::drive(cc::Language::C, rest(1)),
        "trodden-c++" => return cc::drive(cc::Language::Cxx, rest(1)),
        "cargo-trodden" => return cargo::run(rest(1)),
        _ => {}
    }
    if let Some(language) = stand_ins::language(name) {
        return cc::drive(language, rest(1));
    }
    // The words of compiler drivers are clang's, and no others look at them first.
    match arguments.get(1).and_then(|a| a.to_str()) {
        Some("cc") => cc::drive(cc::Language::C, rest(2)),
        Some("c++") => cc::drive(cc::Language::Cxx, rest(2)),
        _ => {
            let matches = cli::command_line().get_matches_from(arguments);
            command(Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
        }
    }
}

fn command(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Cc { arguments } => cc::drive(cc::Language::C, arguments),
        Command::Cxx { arguments } => cc::drive(cc::Language::Cxx, arguments),
        Command::Build(build) => build::run(&build),
        Command::Pgo(job) => pgo::run(&job),
        Command::Record(record) => record::run(&record),
        Command::Sample(job) => sample::attach(&job),
        Command::Last(job) => stream::last(&job),
        Command::Stream(job) => stream::run(&job),
        Command::Collect(job) => record::collect_files(&job),
        Command::Simulate(job) => simulate::run(&job),
        Command::Import(job) => import::run(&job),
        Command::Report(job) => reports::report(&job, cli.color),
        Command::Annotate(job) => reports::annotate(&job, cli.color),
        Command::Advise(job) => advise::run(&job, cli.color),
        Command::Find(job) => find::run(&job, cli.color),
        Command::Isolate(job) => isolate::run(&job, cli.color),
        Command::Residual(job) => residual::run(&job, cli.color),
        Command::Field(job) => field::run(&job, cli.color),
        Command::Export(job) => reports::export(&job),
        Command::Coverage(job) => coverage::run(&job),
        Command::Suite(job) => suite::run(&job),
        Command::Waits(job) => waits::run(&job, cli.color),
        Command::Runs(job) => runs::runs(&job),
        Command::Merge(job) => runs::merge(&job),
        Command::Diff(job) => runs::compare(&job),
        Command::Instrument(job) => instrument::run(&job),
        Command::Loops(job) => loops::run(&job, cli.color),
        Command::Info(info) => info::run(&info),
        Command::Graph(job) => graph::run(&job),
        Command::Plan(job) => plan::run(&job),
        Command::Trace(job) => trace::run(&job),
        Command::Store(job) => store::run(&job),
        Command::Doctor { json, command, .. } if command.is_empty() => doctor::run(json),
        Command::Doctor { json, runs, command } => copies::determinism(&command, runs, json),
        Command::Copy { folder, copy } => copies::work(&folder, copy),
        Command::Drivers { folder } => manual::drivers(folder),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
    }
}

/// A reader that has seen enough is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
