//! The syntax of `trodden residual`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_report::residual::UntestedOrder;

/// `trodden residual`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  trodden residual                                 whatever programs built with --residual wrote here
  trodden residual /var/tmp/counts last~1          raw files of deployed programs, and a run
  trodden residual field --known tests             any profile against any tests
  trodden residual --known tests --known 17        leaves out what became known since the build
  trodden residual --fail-if-new --format sarif -o untested.sarif
  trodden residual field --known tests --hot 100   do hot paths stay hot?
  trodden residual --schemes prog --tests 'make check PROG={}' --field '{} input'
                                                   untested paths and segments across calls, found by both schemes

Which paths are known stands in programs built with --residual; --known adds to it, without a new build.")]
pub struct Residual {
    /// Profiles of the field: files, runs (12, last, last~1), suites, raw files or folders of them. By default, what
    /// programs built with --residual wrote into the run store.
    pub profiles: Vec<String>,
    /// More known paths: a profile, a run, a suite, or a file of known paths. May be given several times.
    #[arg(long, value_name = "PROFILE")]
    pub known: Vec<String>,
    /// Only functions of this name, or whose full name this regular expression matches.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// At most this many paths; 0 for all. [default: 10, of other forms than text all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Only paths that were taken at least this often.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min_count: u64,
    /// Only paths that are new although every edge of them is known.
    #[arg(long)]
    pub known_edges: bool,
    /// What paths are sorted by.
    #[arg(long, value_parser = one_of(ORDERS), default_value = "count")]
    pub by: UntestedOrder,
    /// List untested edges, too.
    #[arg(long)]
    pub edges: bool,
    /// Instead: what became of the paths that tests execute most, in a field profile that counts all paths.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with_all = ["edges",
        "fail_if_new", "known_edges"])]
    pub hot: Option<u32>,
    /// Instead of profiles: make of this program all builds that find untested paths, and untested segments across calls by both schemes;
    /// run tests and field, compare, and report. The program keeps its bitcode, as everything that trodden builds.
    #[arg(long, value_name = "PROGRAM", requires_all = ["tests", "field"], conflicts_with_all = ["profiles", "hot", "known"])]
    pub schemes: Option<PathBuf>,
    /// With --schemes: a shell command that runs the tests; `{}` stands for the program.
    #[arg(long, value_name = "COMMAND", requires = "schemes")]
    pub tests: Option<String>,
    /// With --schemes: a shell command that runs the program as the field does.
    #[arg(long, value_name = "COMMAND", requires = "schemes")]
    pub field: Option<String>,
    /// With --schemes: run the field's command so many times with each build, and report its processor time.
    #[arg(long, value_name = "N", requires = "schemes", default_value_t = 0)]
    pub rounds: u32,
    /// Exit with status 1 if there is an untested path or segment (of those that the other options leave).
    #[arg(long)]
    pub fail_if_new: bool,
    /// In which form.
    #[arg(long, value_enum, default_value_t = ResidualFormat::Text)]
    pub format: ResidualFormat,
    /// Print JSON.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What untested paths are sorted by.
const ORDERS: [Choice<UntestedOrder>; 3] = [
    (UntestedOrder::Count, "count", "Executions, most first"),
    (UntestedOrder::Newest, "newest", "When they were taken first, the latest first"),
    (UntestedOrder::Runs, "runs", "Runs that took them, most first"),
];

/// A form of a report of untested paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResidualFormat {
    /// For people.
    Text,
    /// JSON.
    Json,
    /// SARIF 2.1.0 with code flows, for tools of code review.
    Sarif,
    /// A tracefile of the lines on untested paths.
    Lcov,
}
