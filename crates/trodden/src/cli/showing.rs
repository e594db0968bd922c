//! The syntax of the commands that show what was recorded: `report`, `annotate`, `export`, `advise`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_analysis::advise::AdviceKind;
use trodden_console::arguments::choices::spelled;
use trodden_console::arguments::laboratory::{CoverageChoices, ReportChoices};
use trodden_report::Measure;
use trodden_stored::named::LAST;

/// `trodden report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden report                           the last run
  trodden report nightly --top 30          all runs of a suite, merged
  trodden report --measure events          of a program built with --events: what costs most
  trodden report one.trodden --html page.html
  trodden report t.trace                   calls of a trace as a tree, with counts
  trodden report app.waits --what-if compute_forces=50")]
pub struct Report {
    /// A profile, run (12, last, last~1) or suite; a trace; a recording of waits, or an OTF2, CTF, Chrome or perf trace of another tool.
    #[arg(default_value = LAST)]
    pub file: PathBuf,
    /// Profiles: only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Profiles: quantity that shares are computed from. [default: instructions]
    #[arg(long, value_parser = spelled::<Measure>())]
    pub measure: Option<Measure>,
    /// Maximum number of paths, or of causes of waits; 0 for all. [default: 10, in JSON all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Profiles: maximum number of source lines of a path; 0 for all. [default: 40]
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub steps: Option<usize>,
    /// Waits: predict the run's duration if this function took so many per cent less. May be given several times.
    #[arg(long, value_name = "FUNCTION=PERCENT", value_parser = prediction)]
    pub what_if: Vec<(String, f64)>,
    /// Waits: the run, or folder of logs, with the stream of the same execution, which turns steps into paths.
    #[arg(long, value_name = "RUN")]
    pub stream: Option<String>,
    /// Print JSON.
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write an HTML page, which has all, to this file instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["function", "top", "steps"])]
    pub html: Option<PathBuf>,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: ReportChoices,
}

/// A function, and by how many per cent its time is reduced.
fn prediction(text: &str) -> Result<(String, f64), String> {
    let (function, percent) = text.rsplit_once('=').ok_or("expected FUNCTION=PERCENT")?;
    let percent: f64 = percent.trim_end_matches('%').parse().map_err(|_| "the part after = is not a number".to_owned())?;
    if function.is_empty() || !(0.0..=100.0).contains(&percent) {
        return Err("expected a function and a number between 0 and 100".into());
    }
    Ok((function.to_owned(), percent))
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
    /// Number of the path. [default: the path that executed most instructions]
    #[arg(long, value_name = "N")]
    pub path: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A form for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Folded stacks for flame graphs, of profiles and traces.
    Folded,
    /// A profile for pprof.
    Pprof,
    /// A tracefile of lines and branches; of programs built with --coverage, as their source has them.
    Lcov,
    /// JSON in the schema of `llvm-cov export`, of a program built with --coverage.
    LlvmJson,
    /// The whole report as JSON.
    Json,
    /// A page for browsers, of profiles and traces.
    Html,
    /// Chrome's trace events for Perfetto, of traces and recordings of waits.
    Chrome,
    /// The address of each executed block of a trace.
    Addresses,
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
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  trodden export folded | inferno-flamegraph > paths.svg
  trodden export pprof -o paths.pb.gz && pprof -top paths.pb.gz
  trodden export lcov -o paths.info && genhtml paths.info
  trodden export lcov --include src --exclude '*.h' --relative-to . -o paths.info
  trodden export weights -o prog.weights && trodden build --weights prog.weights -- make
  trodden export known -o prog.known && trodden build --residual prog.known -- make
  trodden export known tests -o more.known --for ./prog.field && TRODDEN_KNOWN=more.known ./prog.field
  trodden export profdata -o prog.profdata && clang -O2 -fprofile-use=prog.profdata ...
  trodden export html t.trace -o t.html --ignore log_message --ignore alloc.c
  trodden export chrome app.waits -o app.json

`folded` is for flamegraph.pl, inferno and speedscope, `pprof` for pprof and speedscope, `lcov` for genhtml, `chrome` for Perfetto.
`trodden help export` explains each form. Time in exports of a trace is the number of executed blocks: a trace has no clock.")]
pub struct Export {
    /// The form.
    pub format: Format,
    /// A profile, run (12, last, last~1) or suite; a trace; a recording of waits.
    #[arg(default_value = LAST)]
    pub file: PathBuf,
    /// Where to write; by default, and for `-`, standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Profiles, as `folded`, `pprof`, `lcov` and `json`: only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// With `lcov` and `llvm-json`: only source files that match this pattern (src, src/*.c), or lie in a folder that does; '*': also
    /// Rust's standard library and packages that cargo fetched (repeatable).
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// With `lcov` and `llvm-json`: no source files that match this pattern, or lie in a folder that does (repeatable).
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// With `lcov`: names of source files below this folder are relative to it.
    #[arg(long, value_name = "FOLDER")]
    pub relative_to: Option<PathBuf>,
    /// With `lcov` and `llvm-json`, of a program built with --coverage: where it is now, or one that did not run (repeatable).
    #[arg(long, value_name = "FILE")]
    pub object: Vec<PathBuf>,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: CoverageChoices,
    /// Profiles, as `folded`, `pprof`, `json` and `html`: quantity that is shown. [default: instructions]
    #[arg(long, value_parser = spelled::<Measure>())]
    pub measure: Option<Measure>,
    /// With `known`: write a file for TRODDEN_KNOWN, by which this residual program knows these paths without being rebuilt.
    #[arg(long = "for", value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
    /// Traces: leave out this function, or the functions of this source file, with all that they call. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub ignore: Vec<String>,
    /// Traces: only this thread.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
}

/// `trodden advise`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden advise                                the last run
  trodden advise nightly --top 30               all runs of a suite together
  trodden advise --function parse --kind correlated
  trodden advise one.trodden --sarif advice.sarif

Savings are shares of all executed instructions, for ideal changes; findings below 0.05% are left out. The time saved is less: measure \
it.")]
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
    /// Print JSON.
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Write the findings to this file as SARIF 2.1.0 instead, for code review tools.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
}
