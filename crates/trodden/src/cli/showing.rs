//! The syntax of the commands that show stored profiles: `report`, `annotate`, `export`, `advise`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_analysis::advise::AdviceKind;
use trodden_console::arguments::choices::spelled;
use trodden_report::Measure;
use trodden_stored::named::LAST;

/// Which paths are shown.
#[derive(Debug, Args)]
pub struct Shown {
    /// Only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Quantity that shares are computed from.
    #[arg(long, value_parser = spelled::<Measure>(), default_value = "instructions")]
    pub measure: Measure,
    /// Maximum number of paths; 0 for all. [default: 10, in JSON all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Minimum share of the program, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub min_share: f64,
}

/// `trodden report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden report                           the last run
  trodden report last~1 --top 30           the run before it
  trodden report nightly                   all runs of a suite together
  trodden report --measure events          of a program built with --events: what costs most
  trodden report one.trodden --html page.html")]
pub struct Report {
    /// A profile: a file, a run (12, last, last~1) or a suite.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// What to show.
    #[command(flatten)]
    pub shown: Shown,
    /// Maximum number of source lines of a path; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub steps: usize,
    /// Print JSON.
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write an HTML page to this file instead.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `trodden annotate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden annotate main                    its hottest path
  trodden annotate parse --path 17 last~1")]
pub struct Annotate {
    /// The function's name, or a regular expression for it.
    pub function: String,
    /// A profile: a file, a run (12, last, last~1) or a suite.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// Number of the path; by default the hottest.
    #[arg(long, value_name = "N")]
    pub path: Option<u64>,
    /// Quantity that says which path is the hottest.
    #[arg(long, value_parser = spelled::<Measure>(), default_value = "instructions")]
    pub measure: Measure,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A form for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Folded stacks, for flame graphs.
    Folded,
    /// A profile for pprof.
    Pprof,
    /// A tracefile of lines and branches.
    Lcov,
    /// The whole report as JSON.
    Json,
    /// A page for browsers.
    Html,
    /// Measured frequencies, for `--weights` of a later build, whose counting costs less then.
    Weights,
    /// The executed paths, for a residual build that counts all others.
    Known,
    /// An edge profile for `-fprofile-use`, of a program built with `--pgo`.
    Profdata,
    /// The same as text.
    Proftext,
}

/// `trodden export`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden export folded | inferno-flamegraph > paths.svg
  trodden export pprof -o paths.pb.gz && pprof -top paths.pb.gz
  trodden export lcov -o paths.info && genhtml paths.info
  trodden export lcov --include src --exclude '*.h' --relative-to . -o paths.info
  trodden export weights -o prog.weights && trodden build --weights prog.weights -- make
  trodden export known -o prog.known && trodden build --residual prog.known -- make
  trodden export known tests -o more.known --for ./prog.field && TRODDEN_KNOWN=more.known ./prog.field
  trodden export profdata -o prog.profdata && clang -O2 -fprofile-use=prog.profdata ...")]
pub struct Export {
    /// The form.
    pub format: Format,
    /// A profile: a file, a run (12, last, last~1) or a suite.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// Where to write; by default, and for `-`, standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// With `lcov`: only source files that match this pattern (src, src/*.c), or lie in a folder that does. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// With `lcov`: no source files that match this pattern, or lie in a folder that does. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// With `lcov`: names of source files below this folder are relative to it.
    #[arg(long, value_name = "FOLDER")]
    pub relative_to: Option<PathBuf>,
    /// What folded stacks are weighed by.
    #[arg(long, value_parser = spelled::<Measure>(), default_value = "instructions")]
    pub measure: Measure,
    /// With `known`: a file for TRODDEN_KNOWN, by which this program, built with --residual, knows these paths too,
    /// without being rebuilt.
    #[arg(long = "for", value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
}

/// `trodden advise`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden advise                                the last run
  trodden advise nightly --top 30               all runs of a suite together
  trodden advise --function parse --kind correlated
  trodden advise one.trodden --sarif advice.sarif

Savings are shares of all executed instructions, for ideal changes. The time saved is less: measure it.")]
pub struct Advise {
    /// A profile: a file, a run (12, last, last~1) or a suite.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// Only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Only findings of this kind. May be given several times.
    #[arg(long, value_parser = spelled::<AdviceKind>())]
    pub kind: Vec<AdviceKind>,
    /// Maximum number of findings that save something, and of edges never taken together; 0 for all. [default: 10, in JSON and SARIF all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Minimum share of all executed instructions that a finding saves, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.05)]
    pub min_share: f64,
    /// Print JSON.
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Write the findings to this file as SARIF 2.1.0 instead, for code review tools.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
}
