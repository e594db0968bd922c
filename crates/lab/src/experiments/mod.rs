//! Experiments with real programs: what counting, recording and analysis cost and bring. One module for each.
//!
//! | file | what |
//! |---|---|
//! | `bench.rs`, `bench/` | what counting costs, beside clang's counters |
//! | `baselines.rs`, `baselines/` | what published schemes that count less than all paths would execute |
//! | `pgo.rs`, `pgo/` | what profile-guided builds gain, by clang's profiles and by ours |
//! | `bugs.rs` | seeded bugs that paths find, and lines and branches do not |
//! | `residual.rs`, `residual/` | untested paths of programs, with tests and suites |
//! | `delta.rs` | how compact the numbers of executed paths are |
//! | `copies.rs`, `copies/` | copies that share the counting, before one program that counts all |
//! | `traces.rs` | what collecting traces costs, by strategies, beside other tools |
//! | `waits.rs`, `waits/` | what recording and analysis of waits cost, beside Python's reader of OTF2 |

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

/// An experiment. They run in a checkout of the sources, and fetch and build programs there.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// Measure what counting costs on programs of the corpus.
    Bench(bench::BenchOptions),
    /// Compute what published schemes that count less than all paths would execute in the run of a profile.
    Baselines(baselines::BaselinesOptions),
    /// Measure what programs gain by profile-guided builds, with profiles of clang's and of trodden's.
    Pgo(pgo::PgoOptions),
    /// Find seeded bugs in programs of the corpus by the paths of failing runs.
    Bugs(bugs::BugsOptions),
    /// Report which paths long runs take that short runs and suites have not, and how large programs become.
    Residual(residual::ResidualOptions),
    /// Measure how compact the numbers of executed paths are, and could be.
    Delta(delta::DeltaOptions),
    /// Count programs of the corpus by copies, and hold that against one program that counts all.
    Copies(copies::CopiesOptions),
    /// Measure what collecting whole traces of two Debian programs costs, by strategies, beside other tools.
    Traces(traces::TracesOptions),
    /// Measure what recording and analysis of waits cost, beside Python's reader of OTF2.
    Waits(waits::WaitsOptions),
}

/// Runs an experiment.
///
/// # Errors
/// Something cannot be installed, fetched or built, or a run failed.
pub fn run(experiment: &Experiment) -> Result<()> {
    // All but this one build programs.
    if !matches!(experiment, Experiment::Baselines(_)) {
        trodden_corpus::steps::in_checkout()?;
    }
    match experiment {
        Experiment::Baselines(options) => baselines::run(options),
        Experiment::Bench(options) => bench::run(options),
        Experiment::Pgo(options) => pgo::run(options),
        Experiment::Bugs(options) => bugs::run(options),
        Experiment::Residual(options) => residual::run(options),
        Experiment::Delta(options) => delta::run(options),
        Experiment::Copies(options) => copies::run(options),
        Experiment::Traces(options) => traces::run(options),
        Experiment::Waits(options) => waits::run(options),
    }
}

/// Says how far long work is: over the last such line on a terminal, in lines of their own elsewhere. No text: the work is done.
fn progress(text: &str) {
    match (std::io::stderr().is_terminal(), text.is_empty()) {
        (true, true) => eprint!("\r\x1b[K"),
        (true, false) => eprint!("\r\x1b[K{text}"),
        (false, true) => {}
        (false, false) => eprintln!("{text}"),
    }
}
