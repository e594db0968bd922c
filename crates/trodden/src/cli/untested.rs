//! Syntax of `trodden untested`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_report::residual::UntestedOrder;

/// `trodden untested`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  trodden untested                            counts that residual programs wrote here
  trodden untested /var/tmp/counts last~1     raw files of deployed programs, and a run
  trodden untested field --known tests        any profile against any tests
  trodden untested --known tests --known 17   tests recorded since the build
  trodden untested --fail --format sarif -o untested.sarif

A program built with --residual knows the tested paths; --known adds more without a rebuild.")]
pub struct Untested {
    /// Field profiles: files, runs, suites, raw files [default: those in the run store].
    ///
    /// By default, these are the counts that residual programs wrote into the run store.
    pub profiles: Vec<String>,
    /// Known paths: a profile, run, suite, or file of known paths (repeatable).
    #[arg(long, value_name = "PROFILE")]
    pub known: Vec<String>,
    /// Only functions with this name or matching this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Maximum number of paths, 0 for all [default: 10 in text, else all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Only untested paths whose edges are all known.
    #[arg(long)]
    pub known_edges: bool,
    /// Order of the paths [default: failures if a run failed, else count].
    #[arg(long, value_parser = one_of(ORDERS))]
    pub by: Option<UntestedOrder>,
    /// Also list untested edges.
    #[arg(long)]
    pub edges: bool,
    /// Exit with status 1 if there is an untested path or segment.
    #[arg(long)]
    pub fail: bool,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t = UntestedFormat::Text)]
    pub format: UntestedFormat,
    /// Print JSON.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// File to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Orders of untested paths.
const ORDERS: [Choice<UntestedOrder>; 4] = [
    (UntestedOrder::Count, "count", "Most executions first"),
    (UntestedOrder::Newest, "newest", "Most recently discovered first"),
    (UntestedOrder::Runs, "runs", "Executed by most runs first"),
    (UntestedOrder::Failures, "failures", "Most typical of failing runs first, then the last before the failure"),
];

/// A format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UntestedFormat {
    /// Plain text.
    Text,
    /// JSON.
    Json,
    /// SARIF 2.1.0 with code flows, for code review tools.
    Sarif,
    /// lcov tracefile of the lines on untested paths, for genhtml.
    Lcov,
    /// JSON for test generators: the lines and branch directions of each path, in order.
    Targets,
}
