//! The syntax of `trodden untested`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_report::residual::UntestedOrder;

/// `trodden untested`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  trodden untested                                 what programs built with --residual wrote here
  trodden untested /var/tmp/counts last~1          raw files of deployed programs, and a run
  trodden untested field --known tests             any profile against any tests
  trodden untested --known tests --known 17        without what became known since the build
  trodden untested --fail --format sarif -o untested.sarif

A program built with --residual knows the tested paths; --known adds to them without another build.")]
pub struct Untested {
    /// Profiles of the field: files, runs, suites, raw files or folders of them. By default, what programs built with --residual
    /// wrote into the run store.
    pub profiles: Vec<String>,
    /// Known paths: a profile, a run, a suite, or a file of known paths. May be given several times.
    #[arg(long, value_name = "PROFILE")]
    pub known: Vec<String>,
    /// Only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Maximum number of paths; 0 for all. [default: 10, in other formats than text all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Only paths that are new although all their edges are known.
    #[arg(long)]
    pub known_edges: bool,
    /// Order of the paths. [default: failures if a run failed, else count]
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
    /// Write to this file instead of standard output (`-`).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What untested paths are sorted by.
const ORDERS: [Choice<UntestedOrder>; 4] = [
    (UntestedOrder::Count, "count", "Most executions first"),
    (UntestedOrder::Newest, "newest", "Most recently discovered first"),
    (UntestedOrder::Runs, "runs", "Executed by most runs first"),
    (UntestedOrder::Failures, "failures", "Most typical of failing runs first, among equals the last before the failure"),
];

/// A form of a report of untested paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UntestedFormat {
    /// For people.
    Text,
    /// JSON.
    Json,
    /// SARIF 2.1.0 with code flows, for code review tools.
    Sarif,
    /// A tracefile of the lines on untested paths, for genhtml.
    Lcov,
    /// For generators of tests: the lines of each path in order, and the side of each branch, as JSON.
    Targets,
}
