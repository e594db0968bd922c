//! The syntax of commands that keep runs, profiles and units: `trodden runs`, `merge`, `diff`, `info`, `cache`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `trodden runs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden runs
  trodden runs suite nightly 3 4 last
  trodden runs remove 7
  trodden runs remove --leftovers")]
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
        /// Runs: numbers, `last`, or a suite, of which all runs are removed.
        #[arg(required_unless_present = "leftovers")]
        runs: Vec<String>,
        /// Remove what killed recordings left: raw counts, and profiles half written.
        #[arg(long)]
        leftovers: bool,
    },
    /// Put runs into a suite.
    Suite {
        /// The suite.
        suite: String,
        /// The runs.
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
    #[arg(short, long, value_name = "FILE")]
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
  trodden diff --fail --min-change 5 good.trodden now.trodden")]
pub struct Diff {
    /// The profile before: a file, a run, a suite.
    pub before: String,
    /// The profile after.
    pub after: String,
    /// Compare functions that are the same in two builds.
    #[arg(long)]
    pub across_builds: bool,
    /// Only paths whose share of their function changed by at least so many percentage points.
    #[arg(long, value_name = "POINTS", default_value_t = 0.0)]
    pub min_change: f64,
    /// Only paths that one side executed at least this often.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub min_count: u64,
    /// Also show paths whose count changed, but not their share.
    #[arg(long)]
    pub counts: bool,
    /// At most this many paths of each function; 0 for all.
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
  trodden info ./prog
  trodden info --json one.trodden")]
pub struct Info {
    /// An instrumented program, a shared library, or a stored profile.
    pub file: PathBuf,
    /// List every unit and every function that is not instrumented.
    #[arg(long)]
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
