//! Syntax of the commands that show or export recorded data: `trodden report`, `annotate`, `export`, `advise`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_analysis::advise::AdviceKind;
use trodden_console::arguments::choices::parser_by_spelling;
use trodden_console::arguments::laboratory::{CoverageChoices, ReportChoices};
use trodden_report::PathMeasure;
use trodden_stored::named::LAST_RUN_NAME;

/// `trodden report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden report                           the last run
  trodden report nightly --top 30          all runs of a suite, merged
  trodden report --measure events          costliest paths of a program built with --events
  trodden report one.trodden --html page.html
  trodden report t.trace                   call tree of a trace, with counts
  trodden report app.waits --what-if compute_forces=50

Paths are ordered by executed instructions. For time, build with `--events tsc` and use
--measure events.")]
pub struct ReportArguments {
    /// Profile, run (12, last, last~1), suite, trace or recording of waits.
    ///
    /// OTF2, CTF, Chrome and perf traces of other tools are read as recordings of waits.
    #[arg(default_value = LAST_RUN_NAME)]
    pub file: PathBuf,
    /// Profiles: only functions with this name or matching this regex.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Profiles: quantity that percentages refer to.
    ///
    /// The default is `instructions`.
    #[arg(long, value_parser = parser_by_spelling::<PathMeasure>())]
    pub measure: Option<PathMeasure>,
    /// Maximum paths or causes, 0 for all [default: 10; JSON: all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Profiles: maximum lines per path, 0 for all [default: 40].
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub steps: Option<usize>,
    /// Waits: predict the effect of a faster FUNCTION (repeatable).
    ///
    /// Prints how long the run would take if the function took PERCENT less time.
    #[arg(long, value_name = "FUNCTION=PERCENT", value_parser = parse_prediction)]
    pub what_if: Vec<(String, f64)>,
    /// Waits: run (or logs) with the stream of the same execution; adds its paths.
    #[arg(long, value_name = "RUN")]
    pub stream: Option<String>,
    /// Print JSON.
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write an HTML page with all paths to this file instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["function", "top", "steps"])]
    pub html: Option<PathBuf>,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: ReportChoices,
}

/// Parses `FUNCTION=PERCENT`: a function, and the percentage by which its time is reduced.
fn parse_prediction(text: &str) -> Result<(String, f64), String> {
    let (function, percent) = text.rsplit_once('=').ok_or("expected FUNCTION=PERCENT")?;
    let percent: f64 = percent.trim_end_matches('%').parse().map_err(|_| "the part after `=` must be a number".to_owned())?;
    if function.is_empty() || !(0.0..=100.0).contains(&percent) {
        return Err("expected a function name and a percentage between 0 and 100".into());
    }
    Ok((function.to_owned(), percent))
}

/// `trodden annotate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden annotate main                    its hottest path
  trodden annotate parse --path 17 last~1")]
pub struct AnnotateArguments {
    /// Name of the function, or a regular expression.
    pub function: String,
    /// Profile: a file, run (12, last, last~1) or suite.
    #[arg(default_value = LAST_RUN_NAME)]
    pub profile: String,
    /// Number of the path [default: the path with the most executed instructions].
    #[arg(long, value_name = "N")]
    pub path: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A format for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Folded stacks for flame graphs; profiles and traces.
    Folded,
    /// Profile for pprof.
    Pprof,
    /// lcov tracefile of lines and branches; exact source lines for programs built with --coverage.
    Lcov,
    /// JSON in the schema of `llvm-cov export`, for programs built with --coverage.
    LlvmJson,
    /// The whole report as JSON.
    Json,
    /// HTML page; profiles and traces.
    Html,
    /// Chrome trace events for Perfetto; traces and recordings of waits.
    Chrome,
    /// The address of each executed block of a trace.
    Addresses,
    /// Measured frequencies, for a later build with `--weights`, which lowers the overhead.
    Weights,
    /// Executed paths, for a residual build, which counts all others.
    Known,
    /// Edge profile for `-fprofile-use`, for programs built with `--pgo`.
    Profdata,
    /// The same edge profile as text.
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
  trodden export known tests -o more.known --for ./prog.field
  TRODDEN_KNOWN=more.known ./prog.field
  trodden export profdata -o prog.profdata && clang -O2 -fprofile-use=prog.profdata ...
  trodden export html t.trace -o t.html --ignore log_message --ignore alloc.c
  trodden export chrome app.waits -o app.json

`folded` is for flamegraph.pl, inferno and speedscope, `pprof` for pprof and speedscope, `lcov` for
genhtml, `chrome` for Perfetto; `trodden help export` explains each format. A trace has no clock:
its exports use the number of executed blocks as time.")]
pub struct ExportArguments {
    /// Format.
    pub format: ExportFormat,
    /// Profile, run (12, last, last~1), suite, trace or recording of waits.
    #[arg(default_value = LAST_RUN_NAME)]
    pub file: PathBuf,
    /// File to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only functions with this name or matching this regular expression.
    ///
    /// Applies to the formats `folded`, `pprof`, `lcov` and `json` of profiles.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// lcov, llvm-json: only files matching this pattern (repeatable).
    ///
    /// Examples: src (a folder), 'src/*.c', '*' for all. Rust's standard library and packages fetched by cargo are included only with '*'.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// lcov, llvm-json: no files matching this pattern (repeatable).
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// lcov: write names of source files relative to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub relative_to: Option<PathBuf>,
    /// lcov, llvm-json: program that moved or did not run (repeatable).
    #[arg(long, value_name = "FILE")]
    pub object: Vec<PathBuf>,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: CoverageChoices,
    /// folded, pprof, json, html: measured quantity [default: instructions].
    #[arg(long, value_parser = parser_by_spelling::<PathMeasure>())]
    pub measure: Option<PathMeasure>,
    /// known: write a TRODDEN_KNOWN file for this residual program.
    ///
    /// With this file, the program knows the paths without being rebuilt.
    #[arg(long = "for", value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
    /// Traces: leave out this function or file, with callees (repeatable).
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
  trodden advise nightly --top 30               all runs of a suite
  trodden advise --function parse --kind correlated
  trodden advise one.trodden --sarif advice.sarif

Savings are upper bounds, in percent of all executed instructions; findings below 0.05% are left
out. The time saved is smaller: measure it.")]
pub struct AdviseArguments {
    /// Profile: a file, run (12, last, last~1) or suite.
    #[arg(default_value = LAST_RUN_NAME)]
    pub profile: String,
    /// Only functions with this name or matching this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Only findings of this kind (repeatable).
    #[arg(long, value_parser = parser_by_spelling::<AdviceKind>())]
    pub kind: Vec<AdviceKind>,
    /// Maximum number of findings, 0 for all [default: 10; JSON, SARIF: all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON.
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Write SARIF 2.1.0, for code review tools, to this file instead.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
}
