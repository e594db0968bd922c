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
//! | `corpus.rs` | real programs: fetching, building, running them |
//! | `bench.rs`, `bench/` | what counting costs, beside clang's counters |
//! | `compile.rs` | how long units take to compile, beside clang |
//! | `pgo.rs` | what profile-guided builds gain, by clang's profiles and by ours |
//! | `bugs.rs` | seeded bugs that paths find, and lines and branches do not |
//! | `residual.rs` | untested paths of programs, with tests and suites |
//! | `oracle.rs` | path profiles against independent oracles |
//! | `copies.rs` | copies that share the counting, before one program that counts all |
//! | `traces.rs` | what collecting traces costs, by strategies, beside other tools |
//! | `waits.rs`, `waits/` | what recording and analysis of waits cost, beside Python's reader of OTF2 |
//! | `dist.rs`, `dist/` | the Debian package and the archive that users install |
//! | `packages.rs` | what has to be installed |
//! | `steps.rs` | running commands so that one sees what is done |
#![forbid(unsafe_code)]

mod bench;
mod bugs;
mod circles;
mod compile;
mod copies;
mod corpus;
mod delta;
mod demo;
mod dist;
mod disturb;
mod fuzz;
mod input;
mod oracle;
mod packages;
mod pages;
mod pgo;
mod release_check;
mod residual;
mod steps;
mod suite;
mod tidy;
mod traces;
mod waits;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
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
    /// Measure what counting costs on programs of the corpus.
    Bench(bench::BenchOptions),
    /// Measure how long units take to compile, beside clang.
    Compile(compile::CompileOptions),
    /// Measure what programs gain by profile-guided builds, with profiles of clang's and of trodden's.
    Pgo(pgo::PgoOptions),
    /// Find seeded bugs in programs of the corpus by the paths of failing runs.
    Bugs(bugs::BugsOptions),
    /// Report which paths long runs take that short runs and suites have not, and how large programs become.
    Residual(residual::ResidualOptions),
    /// Measure how compact the numbers of executed paths are, and could be.
    Delta(delta::DeltaOptions),
    /// Hold path profiles against block counters, LLVM's edge profiles and logs of every step.
    Oracle(oracle::OracleOptions),
    /// Count programs of the corpus by copies, and hold that against one program that counts all.
    Copies(copies::CopiesOptions),
    /// Measure what collecting whole traces of two Debian programs costs, by strategies, beside other tools.
    Traces(traces::TracesOptions),
    /// Measure what recording and analysis of waits cost, beside Python's reader of OTF2.
    Waits(waits::WaitsOptions),
    /// Make the Debian package and the archive that users install.
    Dist(dist::DistOptions),
    /// Run a command and append what it used to a file, as a line of JSON.
    #[command(hide = true)]
    Measure {
        /// The file.
        file: PathBuf,
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
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
        Task::Bench(options) => bench::run(&options)?,
        Task::Compile(options) => compile::run(&options)?,
        Task::Pgo(options) => pgo::run(&options)?,
        Task::Bugs(options) => bugs::run(&options)?,
        Task::Residual(options) => residual::run(&options)?,
        Task::Delta(options) => delta::run(&options)?,
        Task::Oracle(options) => oracle::run(&options)?,
        Task::Copies(options) => copies::run(&options)?,
        Task::Traces(options) => traces::run(&options)?,
        Task::Waits(options) => waits::run(&options)?,
        Task::Dist(options) => dist::run(&options)?,
        Task::Measure { file, command } => return bench::usage::measure(&file, &command),
    }
    Ok(ExitCode::SUCCESS)
}
