//! `cargo xtask`: what a developer of trodden runs.
//!
//! | file | what |
//! |---|---|
//! | `demo.rs` | from a fresh machine to the report of a real program |
//! | `suite.rs` | everything that is checked before a change goes in |
//! | `release_check.rs` | everything that must hold before a release |
//! | `fuzz.rs` | mutated input for every reader |
//! | `disturb.rs` | recorders of traces that are ended at random moments |
//! | `tidy.rs`, `circles.rs`, `pages.rs`, `pages/` | checks of sources and documentation |
//! | `corpus.rs` | real programs: fetching, building, running them (by the crate `corpus`) |
//! | `compile.rs` | how long units take to compile, beside clang |
//! | `oracle.rs` | path profiles against independent oracles |
//! | `dist.rs`, `dist/` | the Debian package and the archive that users install |
#![forbid(unsafe_code)]

mod circles;
mod compile;
mod corpus;
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

/// Tasks of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what is needed, build trodden, and profile bzip2 from Debian's sources.
    Demo,
    /// Install what is needed, and run all tests and checks.
    Test(suite::SuiteOptions),
    /// Run everything that must hold before a release: `test`, the whole corpus, the oracles, the packages. Takes hours.
    ReleaseCheck,
    /// Check sources and documentation: headers, links, dependencies between crates (a part of `test`).
    Tidy,
    /// Feed mutated input to the readers (a part of `test`).
    Fuzz(fuzz::FuzzOptions),
    /// End recorders of traces, and their targets, at random moments (a part of `release-check`).
    Disturb(disturb::DisturbOptions),
    /// Fetch, build and run the programs of the corpus.
    Corpus(corpus::CorpusOptions),
    /// Measure how long units take to compile, beside clang.
    Compile(compile::CompileOptions),
    /// Hold path profiles against block counters, LLVM's edge profiles and logs of every step.
    Oracle(oracle::OracleOptions),
    /// Make the Debian package and the archive that users install.
    Dist(dist::DistOptions),
}

/// Shows what is done, as it is reported: a line each on standard error.
struct Steps;

impl log::Log for Steps {
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
    if log::set_logger(&Steps).is_ok() {
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

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Demo => demo::run()?,
        Task::Test(options) => suite::run(&options)?,
        Task::ReleaseCheck => release_check::run()?,
        Task::Tidy => suite::tidy()?,
        Task::Fuzz(options) => fuzz::run(&options)?,
        Task::Disturb(options) => disturb::run(&options)?,
        Task::Corpus(options) => corpus::run(&options)?,
        Task::Compile(options) => compile::run(&options)?,
        Task::Oracle(options) => oracle::run(&options)?,
        Task::Dist(options) => dist::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}
