//! The syntax of `trodden suite`.

use super::coverage::CoveredFiles;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_analysis::suite::order::Worth;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_report::suite::SuiteCost;

/// `trodden suite`
#[derive(Debug, Subcommand)]
pub enum Suite {
    /// Run tests, each as a run of its own.
    Run(SuiteRun),
    /// List the suites, or the tests of one.
    List {
        /// The suite.
        suite: Option<String>,
        /// Functions whose paths count.
        #[command(flatten)]
        of: SuiteFunctions,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Find tests without which the suite executes the same paths.
    Redundant(Redundant),
    /// Order tests by new paths, or by the paths that a change concerns.
    Order(Order),
    /// Show which lines and paths each test adds, for a program built with --coverage.
    Coverage(SuiteCoverage),
    /// Run a test binary of Rust's, each test of it as a run of its own: what `suite run --cargo` has cargo run.
    #[command(hide = true)]
    Step {
        /// The suite.
        #[arg(long)]
        suite: String,
        /// The folder with the run store.
        #[arg(long)]
        project: PathBuf,
        /// The test binary with its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// `trodden suite run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden suite run tests --commands tests.txt         a command of the shell on each line
  trodden suite run tests --ctest build -- -LE slow    tests of CMake's ctest, chosen by its options
  trodden suite run tests --cargo -- --release         cargo test; each test in a process of its own
  trodden suite run tests --nextest -- --lib           the same by cargo nextest

All processes of a test are counted to it. A line of --commands may begin with a name and a tab. Exit status 1 if a test failed. For \
scripts and `make check`, see
`trodden record --suite`.")]
pub struct SuiteRun {
    /// The suite.
    pub suite: String,
    /// Where the tests come from.
    #[command(flatten)]
    pub from: SuiteFrom,
    /// Number of tests that run at the same time.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: u16,
    /// Options for ctest, cargo test or cargo nextest run.
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<OsString>,
}

/// Where tests come from.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct SuiteFrom {
    /// File with a shell command on each line; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub commands: Option<PathBuf>,
    /// CMake's build folder.
    #[arg(long, value_name = "FOLDER")]
    pub ctest: Option<PathBuf>,
    /// The tests of the Rust package in the current folder.
    #[arg(long)]
    pub cargo: bool,
    /// The same, run by cargo-nextest.
    #[arg(long)]
    pub nextest: bool,
}

/// Whose paths are looked at: by default, those of all functions that the tests execute.
#[derive(Debug, Default, Args)]
pub struct SuiteFunctions {
    /// Only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Only functions of this source file, or of files below this folder. May be given several times.
    #[arg(long, value_name = "PLACE")]
    pub file: Vec<PathBuf>,
    /// Leave out functions of this name, or whose full name matches this regular expression. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub except: Vec<String>,
}

/// `trodden suite coverage`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden suite coverage tests
  trodden suite coverage tests --lines --include src     which lines each adds
  trodden suite coverage tests --changed-since HEAD~1    of lines that changed since that commit

Next is always the test that executes most lines which none before it has executed; of equal ones, that which takes most new paths.")]
pub struct SuiteCoverage {
    /// The suite.
    pub suite: String,
    /// Which files.
    #[command(flatten)]
    pub files: CoveredFiles,
    /// List the lines that each test adds.
    #[arg(long)]
    pub lines: bool,
    /// Only lines changed since this commit.
    #[arg(long, value_name = "COMMIT")]
    pub changed_since: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden suite redundant`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden suite redundant tests
  trodden suite redundant tests --by time --json
  trodden suite redundant tests --file src --except '::tests::'    a Rust package's: only paths of the code under test

The set that is kept takes every path that the suite takes. The search is exact; if it takes longer than 10 seconds, the smallest \
number of tests that any such set needs is printed.")]
pub struct Redundant {
    /// The suite.
    pub suite: String,
    /// Functions whose paths count.
    #[command(flatten)]
    pub of: SuiteFunctions,
    /// What to minimise.
    #[arg(long, value_parser = one_of(COSTS), default_value = "tests")]
    pub by: SuiteCost,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What tests cost.
const COSTS: [Choice<SuiteCost>; 2] = [(SuiteCost::Tests, "tests", "Their number"), (SuiteCost::Time, "time", "Their time")];

/// `trodden suite order`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden suite order tests                     most new paths first
  trodden suite order tests --changed-since HEAD   first those that take paths through lines changed since the commit that was built
  git diff main... | trodden suite order tests --changed-since - --names | head -20
  trodden suite order tests --by rate           most new paths for their time

Lines of a change are those of the old sources, from which the program was built that the tests ran.")]
pub struct Order {
    /// The suite.
    pub suite: String,
    /// Functions whose paths count.
    #[command(flatten)]
    pub of: SuiteFunctions,
    /// Value of a test.
    #[arg(long, value_parser = one_of(WORTHS), default_value = "paths")]
    pub by: Worth,
    /// Put the tests first that take paths through changed lines: since this commit, or by a unified diff in this file (`-` for standard
    /// input).
    #[arg(long, value_name = "COMMIT|DIFF")]
    pub changed_since: Option<String>,
    /// Only tests that execute a changed path.
    #[arg(long, requires = "changed_since")]
    pub only_changed: bool,
    /// Print names only, one per line.
    #[arg(long, conflicts_with = "json")]
    pub names: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What tests are worth.
const WORTHS: [Choice<Worth>; 2] = [(Worth::Paths, "paths", "New paths"), (Worth::PathsPerTime, "rate", "New paths for their time")];
