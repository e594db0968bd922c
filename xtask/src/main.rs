//! `cargo xtask`: maintenance tasks of the project.
//!
//! | file | what |
//! |---|---|
//! | `demo.rs` | from a fresh machine to the report of a real program |
//! | `suite.rs` | all checks before a change is merged |
//! | `release_check.rs` | all checks before a release |
//! | `fuzz.rs` | mutated inputs for every reader of a file format |
//! | `disturb.rs` | trace recording while processes are killed at random moments |
//! | `tidy.rs`, `tidy/`, `cycles.rs`, `pages.rs`, `pages/` | checks of sources and documentation |
//! | `corpus.rs` | fetching, building and running real programs, by means of the crate `corpus` |
//! | `compile.rs` | compile times compared with clang |
//! | `oracle.rs`, `oracle/` | checking path profiles against profiles obtained in other ways |
//! | `dist.rs`, `dist/` | the Debian package, the rpm package and the archive |
#![forbid(unsafe_code)]

mod compile;
mod corpus;
mod cycles;
mod demo;
mod dist;
mod disturb;
mod fuzz;
mod oracle;
mod pages;
mod release_check;
mod suite;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Run a maintenance task of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: MaintenanceTask,
}

#[derive(Debug, Subcommand)]
enum MaintenanceTask {
    /// Build trodden, installing its prerequisites, and profile bzip2 from Debian's sources.
    Demo(demo::DemoOptions),
    /// Run all tests and checks, installing what they need.
    Test(suite::SuiteOptions),
    /// Run all checks before a release: `test`, slow sessions, the complete corpus, the oracles, the packages. Takes hours.
    ReleaseCheck,
    /// Check sources and documentation: headers, links, dependencies between crates (a part of `test`).
    Tidy,
    /// Run the console sessions in the documentation and compare their output (the fast ones are a part of `test`).
    Sessions(pages::sessions::SessionOptions),
    /// Feed mutated inputs to the readers (a part of `test`).
    Fuzz(fuzz::FuzzOptions),
    /// Kill recorders of traces, and the programs that they trace, at random moments (a part of `release-check`).
    Disturb(disturb::DisturbOptions),
    /// Fetch, build and run the programs of the corpus.
    Corpus(corpus::CorpusOptions),
    /// Compare the compile times of `trodden cc` and clang.
    Compile(compile::CompileOptions),
    /// Check path profiles against block counters, LLVM's edge profiles and logs of every step.
    Oracle(oracle::OracleOptions),
    /// Make the Debian package and the archive that users install.
    Dist(dist::DistOptions),
}

struct StderrLogger;

impl log::Log for StderrLogger {
    fn enabled(&self, message: &log::Metadata) -> bool {
        message.target().starts_with("trodden")
    }

    fn log(&self, message: &log::Record) {
        if self.enabled(message.metadata()) {
            eprintln!("{}", message.args());
        }
    }

    fn flush(&self) {}
}

fn main() -> ExitCode {
    if log::set_logger(&StderrLogger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    match run(Cli::parse().task) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: MaintenanceTask) -> Result<ExitCode> {
    match task {
        MaintenanceTask::Demo(options) => demo::run(&options)?,
        MaintenanceTask::Test(options) => suite::run(&options)?,
        MaintenanceTask::ReleaseCheck => release_check::run()?,
        MaintenanceTask::Tidy => suite::run_tidy()?,
        MaintenanceTask::Sessions(options) => suite::run_sessions(&options)?,
        MaintenanceTask::Fuzz(options) => fuzz::run(&options)?,
        MaintenanceTask::Disturb(options) => disturb::run(&options)?,
        MaintenanceTask::Corpus(options) => corpus::run(&options)?,
        MaintenanceTask::Compile(options) => compile::run(&options)?,
        MaintenanceTask::Oracle(options) => oracle::run(&options)?,
        MaintenanceTask::Dist(options) => dist::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}
