//! Syntax of `trodden untested`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::choices::{ArgumentChoice, parser_of_choices};
use trodden_report::residual::UntestedOrder;

/// `trodden untested`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  trodden untested                            counts that residual programs wrote here
  trodden untested /var/tmp/counts last~1     raw files of deployed programs, and a run
  trodden untested field --known tests        any profile against any tests
  trodden untested --known tests --known 17   tests recorded since the build
  trodden untested --fail --sarif untested.sarif

A residual program (built with --residual) knows the tested paths and counts only others; --known
adds tested paths without a rebuild. The JSON also has untested edges, and the lines and branches of
each path in order, for test generators.")]
pub struct UntestedArguments {
    /// Field profiles: files, runs, suites, raw files [default: counts of residual programs here].
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
    /// Order of the paths [default: failures if a run failed, else count].
    #[arg(long, value_parser = parser_of_choices(UNTESTED_ORDER_CHOICES))]
    pub by: Option<UntestedOrder>,
    /// Exit with status 1 if there is an untested path or segment.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long, conflicts_with_all = ["sarif", "lcov"])]
    pub json: bool,
    /// Write SARIF 2.1.0, for code review tools, to this file instead.
    #[arg(long, value_name = "FILE", conflicts_with = "lcov")]
    pub sarif: Option<PathBuf>,
    /// Write the lines on untested paths, for genhtml, to this file instead.
    #[arg(long, value_name = "FILE")]
    pub lcov: Option<PathBuf>,
}

/// Orders of untested paths.
const UNTESTED_ORDER_CHOICES: [ArgumentChoice<UntestedOrder>; 4] = [
    (UntestedOrder::Count, "count", "Most executions first"),
    (UntestedOrder::Newest, "newest", "Most recently discovered first"),
    (UntestedOrder::Runs, "runs", "Executed by most runs first"),
    (UntestedOrder::Failures, "failures", "Most typical of failing runs first, then the last before the failure"),
];
