//! Syntax of the commands that manage runs, profiles and units: `trodden runs`, `merge`, `diff`, `info`, `cache`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use trodden_console::arguments::places::output_path;

/// `trodden runs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden runs
  trodden runs suite nightly 3 4 last
  trodden runs remove 1-20 nightly
  trodden runs remove --leftovers

Runs are stored in the folder .trodden of the current folder, or where TRODDEN_RUNS points
(`trodden info` shows the place). To merge runs of several machines, use `record -o FILE`
on each, then `trodden merge`.")]
pub struct RunsArguments {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Command; without one, the runs are listed.
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
}

/// A command on runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Remove runs and their profiles.
    Remove {
        /// Runs: numbers, ranges (3-7), `last`, or suites (all their runs).
        #[arg(required_unless_present = "leftovers")]
        runs: Vec<String>,
        /// Remove raw counts and incomplete profiles left by killed recordings.
        #[arg(long)]
        leftovers: bool,
    },
    /// Put runs into a suite; a run belongs to at most one suite.
    Suite {
        /// Name of the suite.
        suite: String,
        /// Runs: numbers, ranges (3-7), `last`, or another suite.
        #[arg(required = true)]
        runs: Vec<String>,
    },
}

/// `trodden merge`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden merge -o all.trodden a.trodden b.trodden
  trodden merge -o nightly.trodden nightly

Each machine writes its profile with `trodden record -o FILE`.")]
pub struct MergeArguments {
    /// File for the merged profile.
    #[arg(short, long, value_name = "FILE", value_parser = output_path())]
    pub output: PathBuf,
    /// Keep different builds separate; otherwise only the first build is merged, with a warning.
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
  trodden diff pass.trace fail.trace               where a failing run diverges
  trodden diff old.trace new.trace --ignore log    two builds, aligned by function and line
  trodden diff --sequence 12 13                    streams of two runs, aligned by calls

Exit status: 2 if the files cannot be compared; with --fail, 1 if they differ; otherwise 0.")]
pub struct DiffArguments {
    /// First profile, run, suite, trace, or logs of a stream.
    pub before: PathBuf,
    /// Second file, of the same kind.
    pub after: PathBuf,
    /// Profiles: compare two builds, by source lines where functions differ.
    ///
    /// Functions with equal graphs are compared by paths. Others are compared by the executions of each source line per call; lines are
    /// matched by their distance from the beginning of the function.
    #[arg(long)]
    pub across_builds: bool,
    /// Profiles: minimum change of a path's share [default: 0 points].
    ///
    /// A path's share is its percentage of its function's executions; the change is in percentage points. For lines, 100 points are one
    /// execution per call.
    #[arg(long, value_name = "POINTS")]
    pub min_change: Option<f64>,
    /// Profiles: also show paths with the same share but a different count.
    #[arg(long)]
    pub counts: bool,
    /// Compare the streams of two runs instead of their counts.
    #[arg(long)]
    pub sequence: bool,
    /// Traces: leave out this function or file, with callees (repeatable).
    #[arg(long, value_name = "NAME")]
    pub ignore: Vec<String>,
    /// Only this thread [default: all for traces, 0 for streams].
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Maximum differences (profiles: per function), 0 for all.
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
  trodden info                      where the run store and the unit cache are
  trodden info ./prog
  trodden info --json ./prog        with all units, and all functions that are not counted")]
pub struct InfoArguments {
    /// Instrumented program or library; profile, run, or logs of streams.
    pub file: Option<PathBuf>,
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

A unit is a compiled source file. The unit cache keeps the map and the bitcode of each unit, in case
the program is stripped of them, and the inputs that `trodden instrument` links again.")]
pub struct CacheArguments {
    /// Remove files that were neither read nor written for this number of days.
    #[arg(long, value_name = "DAYS")]
    pub prune: Option<u32>,
}
