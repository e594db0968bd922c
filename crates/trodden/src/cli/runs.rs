//! The syntax of commands that keep runs, profiles and units: `trodden runs`, `merge`, `diff`, `info`, `cache`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use trodden_console::arguments::places::place;

/// `trodden runs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden runs
  trodden runs suite nightly 3 4 last
  trodden runs remove 1-20 nightly
  trodden runs remove --leftovers

`trodden info` says where runs are kept. To add up runs of several machines: `record -o FILE` on each, then `trodden merge`.")]
pub struct Runs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// What to do; by default the runs are listed.
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
}

/// What to do with runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Remove runs and their profiles.
    Remove {
        /// Runs: numbers, ranges of numbers (3-7), `last`, or a suite, of which all runs are removed.
        #[arg(required_unless_present = "leftovers")]
        runs: Vec<String>,
        /// Remove what killed recordings left: raw counts, and profiles half written.
        #[arg(long)]
        leftovers: bool,
    },
    /// Put runs into a suite; a run is in one at most.
    Suite {
        /// The suite.
        suite: String,
        /// Runs: numbers, ranges of numbers (3-7), `last`, or another suite.
        #[arg(required = true)]
        runs: Vec<String>,
    },
}

/// `trodden merge`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden merge -o all.trodden a.trodden b.trodden
  trodden merge -o nightly.trodden nightly")]
pub struct Merge {
    /// The result.
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub output: PathBuf,
    /// Keep different builds of one program side by side instead of leaving the later ones out.
    #[arg(long)]
    pub separate_builds: bool,
    /// Profiles: files, runs, suites.
    #[arg(required = true)]
    pub profiles: Vec<String>,
}

/// `trodden diff`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden diff last~1 last
  trodden diff --fail --min-change 5 good.trodden now.trodden
  trodden diff pass.trace fail.trace               where did the failing run do something else?
  trodden diff old.trace new.trace --ignore log    two builds, aligned by function and line
  trodden diff --sequence 12 13                    two runs of `record --whole-program`, aligned by calls

Exit status: 0; with --fail 1 if there is a difference; 2 if they cannot be compared.")]
pub struct Diff {
    /// The profile, run or suite, the trace, or the logs of a stream, before.
    pub before: PathBuf,
    /// The one after, of the same kind.
    pub after: PathBuf,
    /// Profiles: compare functions that are the same in two builds.
    #[arg(long)]
    pub across_builds: bool,
    /// Profiles: only paths whose share of their function changed by at least so many percentage points.
    #[arg(long, value_name = "POINTS")]
    pub min_change: Option<f64>,
    /// Profiles: also show paths whose count changed, but not their share.
    #[arg(long)]
    pub counts: bool,
    /// Compare the recorded streams of two runs rather than their counts.
    #[arg(long)]
    pub sequence: bool,
    /// Traces: leave out this function, or the functions of this source file, with all that they call. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub ignore: Vec<String>,
    /// Compare only this thread. [default: all of traces, 0 of streams]
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Maximum number of differences, of profiles in each function; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Exit with status 1 if there is a difference.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden info`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden info                      where runs, units and sources are sought
  trodden info ./prog
  trodden info --json one.trodden")]
pub struct Info {
    /// An instrumented program or shared library; a profile or run, with its streams; logs of streams. Without one: version and folders.
    pub file: Option<PathBuf>,
    /// Programs: list every unit and every function that is not instrumented.
    #[arg(long, requires = "file")]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden cache`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden cache
  trodden cache --prune 90

Programs carry the maps and the bitcode of their units. The unit cache has them for stripped programs, and the inputs that \
`trodden instrument` links again.")]
pub struct Cache {
    /// Remove files that were neither read nor written for this many days.
    #[arg(long, value_name = "DAYS")]
    pub prune: Option<u32>,
}
