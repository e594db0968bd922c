//! Syntax of `trodden suite`.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::choices::{ArgumentChoice, parser_of_choices};
use trodden_report::suite::SuiteCost;

/// `trodden suite`
#[derive(Debug, Subcommand)]
pub enum SuiteCommand {
    /// Run tests, and store each as a separate run.
    Run(SuiteRunArguments),
    /// List the suites, the tests of a suite, or the tests that can be left out.
    List(SuiteListArguments),
    /// Order tests by the new paths or lines they execute, or by the changed code.
    Order(SuiteOrderArguments),
    /// Record each test of a Rust test binary as a separate run; cargo calls this for `suite run --cargo`.
    #[command(hide = true)]
    Step {
        /// Name of the suite.
        #[arg(long)]
        suite: String,
        /// Folder that contains the run store.
        #[arg(long)]
        project: PathBuf,
        /// Test binary and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// `trodden suite run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden suite run tests --commands tests.txt         one shell command per line
  trodden suite run tests --ctest build -- -LE slow    ctest, with its options
  trodden suite run tests --cargo -- --release         cargo test, one process per test
  trodden suite run tests --nextest -- --lib           cargo nextest

All processes of a test belong to its run. A line of --commands may start with the test's name and a
tab. The exit status is 1 if a test failed. For scripts and `make check`, use `record --suite`.")]
pub struct SuiteRunArguments {
    /// Name of the suite.
    pub suite: String,
    /// Source of the tests.
    #[command(flatten)]
    pub source: TestListSource,
    /// Number of tests running at a time.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: u16,
    /// Options of ctest, `cargo test` or `cargo nextest run`.
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<OsString>,
}

/// Source of tests.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TestListSource {
    /// File with one shell command per line (- for standard input).
    #[arg(long, value_name = "FILE")]
    pub commands: Option<PathBuf>,
    /// Build folder of CMake whose tests ctest runs.
    #[arg(long, value_name = "FOLDER")]
    pub ctest: Option<PathBuf>,
    /// Tests of the Rust package in the current folder, run by `cargo test`.
    #[arg(long)]
    pub cargo: bool,
    /// Tests of the Rust package in the current folder, run by `cargo nextest`.
    #[arg(long)]
    pub nextest: bool,
}

/// Selection of functions; by default all that the tests execute.
#[derive(Debug, Default, Args)]
pub struct SuiteFunctionSelection {
    /// Only functions with this name or matching this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Only functions of this source file or folder (repeatable).
    #[arg(long, value_name = "PLACE")]
    pub file: Vec<PathBuf>,
    /// Leave out functions with this name or matching this regex.
    #[arg(long, value_name = "NAME")]
    pub except: Vec<String>,
}

/// `trodden suite list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden suite list
  trodden suite list tests --function parse              tests that execute this function
  trodden suite list tests --redundant                   tests that can be left out
  trodden suite list tests --redundant=time --json
  trodden suite list tests --redundant --file src --except '::tests::'   Rust: only tested code

Without the redundant tests, the suite takes the same paths. The search for the smallest (=time:
fastest) set of other tests is exact; after 10 seconds, the best set so far and a lower bound are
printed.")]
pub struct SuiteListArguments {
    /// Name of the suite [default: list all suites].
    pub suite: Option<String>,
    /// List tests that can be left out together, maximising their number or time.
    #[arg(long, value_name = "BY", num_args = 0..=1, require_equals = true, default_missing_value = "tests")]
    #[arg(requires = "suite", value_parser = parser_of_choices(SUITE_COST_CHOICES))]
    pub redundant: Option<SuiteCost>,
    /// Selection of functions.
    #[command(flatten)]
    pub functions: SuiteFunctionSelection,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Costs of a set of tests.
const SUITE_COST_CHOICES: [ArgumentChoice<SuiteCost>; 2] =
    [(SuiteCost::Tests, "tests", "Number of tests"), (SuiteCost::Time, "time", "Total time of the tests")];

/// `trodden suite order`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden suite order tests                        most new paths first
  trodden suite order tests --by rate              most new paths per second first
  trodden suite order tests --by lines             most new lines first (built with --coverage)
  trodden suite order tests --changed-since HEAD   tests that execute changed lines first
  git diff main... | trodden suite order tests --changed-since - --names | head -20

Changed lines are looked up in the old sources, from which the tested program was built. With --by
lines, the JSON has the lines that each test adds.")]
pub struct SuiteOrderArguments {
    /// Name of the suite.
    pub suite: String,
    /// Selection of functions.
    #[command(flatten)]
    pub functions: SuiteFunctionSelection,
    /// Criterion for the order.
    #[arg(long, value_parser = parser_of_choices(TEST_ORDER_CHOICES), default_value = "paths")]
    pub by: TestOrderCriterion,
    /// Put tests first that execute lines changed since COMMIT or in DIFF.
    ///
    /// DIFF is a file with a unified diff, or `-` for standard input.
    #[arg(long, value_name = "COMMIT|DIFF")]
    pub changed_since: Option<String>,
    /// --by lines: program that has moved since the tests ran (repeatable).
    #[arg(long, value_name = "FILE")]
    pub object: Vec<PathBuf>,
    /// List only tests that execute a path through changed lines.
    #[arg(long, requires = "changed_since")]
    pub only_changed: bool,
    /// Print only names, one per line.
    #[arg(long, conflicts_with = "json")]
    pub names: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The value that tests are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOrderCriterion {
    /// The number of new paths.
    Paths,
    /// The number of new paths per second.
    Rate,
    /// The number of new source lines, then of new paths.
    Lines,
}

/// Values that tests are ordered by.
const TEST_ORDER_CHOICES: [ArgumentChoice<TestOrderCriterion>; 3] = [
    (TestOrderCriterion::Paths, "paths", "New paths"),
    (TestOrderCriterion::Rate, "rate", "New paths per second"),
    (TestOrderCriterion::Lines, "lines", "New lines, then new paths; for programs built with --coverage"),
];
