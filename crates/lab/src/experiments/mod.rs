//! Experiments with real programs, with a module for each: the cost and benefit of counting, recording and analysis.

mod baselines;
mod bench;
mod bugs;
mod copies;
mod delta;
mod pgo;
mod residual;
mod traces;
mod waits;

pub use bench::usage::measure;

use anyhow::Result;
use clap::Subcommand;
use std::io::IsTerminal;

/// An experiment. Experiments run in a checkout of the sources, and fetch and build programs there.
#[derive(Debug, Subcommand)]
pub enum LabExperiment {
    /// Measure the overhead of counting on corpus programs.
    Bench(bench::BenchOptions),
    /// Compute how many operations published cheaper schemes would execute in the run of a profile.
    Baselines(baselines::BaselinesOptions),
    /// Measure the speedup of profile-guided builds with clang's profiles and with trodden's.
    Pgo(pgo::PgoOptions),
    /// Find seeded bugs in corpus programs by the paths of failing runs.
    Bugs(bugs::BugsOptions),
    /// Report which paths long runs take that short runs and test suites do not, and how much programs grow.
    Residual(residual::ResidualOptions),
    /// Measure how compact the numbers of executed paths are, and how compact they could be.
    Delta(delta::DeltaOptions),
    /// Count corpus programs with copies, and compare with one program that counts everything.
    Copies(copies::CopiesOptions),
    /// Measure the overhead of collecting complete traces of two Debian programs, by strategy, and compare with other tools.
    Traces(traces::TracesOptions),
    /// Measure the cost of recording and analysing waits, and compare with Python's reader of OTF2.
    Waits(waits::WaitsOptions),
}

pub fn run(experiment: &LabExperiment) -> Result<()> {
    // Baselines are computed from a profile alone, so they need no checkout. All other experiments build programs.
    if !matches!(experiment, LabExperiment::Baselines(_)) {
        trodden_corpus::steps::require_checkout()?;
    }
    match experiment {
        LabExperiment::Baselines(options) => baselines::run(options),
        LabExperiment::Bench(options) => bench::run(options),
        LabExperiment::Pgo(options) => pgo::run(options),
        LabExperiment::Bugs(options) => bugs::run(options),
        LabExperiment::Residual(options) => residual::run(options),
        LabExperiment::Delta(options) => delta::run(options),
        LabExperiment::Copies(options) => copies::run(options),
        LabExperiment::Traces(options) => traces::run(options),
        LabExperiment::Waits(options) => waits::run(options),
    }
}

/// Shows progress. On a terminal, each line overwrites the previous one. An empty text ends the progress line.
fn show_progress(text: &str) {
    match (std::io::stderr().is_terminal(), text.is_empty()) {
        (true, true) => eprint!("\r\x1b[K"),
        (true, false) => eprint!("\r\x1b[K{text}"),
        (false, true) => {}
        (false, false) => eprintln!("{text}"),
    }
}
