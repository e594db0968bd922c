//! The syntax of `trodden coverage`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use trodden_stored::named::LAST;

/// `trodden coverage`
#[derive(Debug, Subcommand)]
pub enum Coverage {
    /// Show how much of each file was executed: regions, functions, lines, branches, and paths.
    Report(CoverageReport),
    /// Show the sources with the count of each line and region, as text or as pages for browsers.
    Show(CoverageShow),
    /// Write coverage in a form that other tools read.
    Export(CoverageExport),
    /// Compare the coverage of two profiles: which lines and paths only one of them has.
    Diff(CoverageDiff),
}

/// What coverage is shown of.
#[derive(Debug, Args)]
pub struct Covered {
    /// A profile: a file, or a run (12, last, last~1), or a suite.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// Which files.
    #[command(flatten)]
    pub files: CoveredFiles,
}

/// Which files of a program coverage is shown of.
#[derive(Clone, Debug, Default, Args)]
pub struct CoveredFiles {
    /// The program or library that ran, if it was moved; or one that did not run, all of which counts as not executed. May be given several
    /// times.
    #[arg(long, value_name = "FILE")]
    pub object: Vec<PathBuf>,
    /// Only source files that match this pattern (src, src/*.c), or lie in a folder that does. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// No source files that match this pattern, or lie in a folder that does. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// No source files whose path this regular expression matches.
    #[arg(long, value_name = "REGEX")]
    pub ignore_filename_regex: Option<String>,
    /// Also files of Rust's standard library and of packages that cargo fetched, which are left out otherwise.
    #[arg(long)]
    pub all_files: bool,
    /// Reproduce the counts of another tool. llvm-cov counts code behind a call as executed although the call did not return.
    #[arg(long, value_name = "TOOL", value_enum)]
    pub like: Option<CoverageTool>,
}

/// A tool whose counts can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoverageTool {
    /// LLVM's.
    LlvmCov,
}

/// `trodden coverage report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden coverage report                              the last run
  trodden coverage report tests --functions            all runs of a suite, added up, by function
  trodden coverage report --include src --fail-under-lines 80
  trodden coverage report tests --changed-since HEAD~1 only lines that changed since that commit

The program must be built with `trodden build --coverage` (`trodden cc --trodden=coverage`, `cargo trodden build --coverage`).
Paths are those of the optimised code; an untested combination is a path that no run took although some run took each of its edges.")]
pub struct CoverageReport {
    /// Of what.
    #[command(flatten)]
    pub covered: Covered,
    /// A row for each function instead of each file, those with most untested combinations first.
    #[arg(long)]
    pub functions: bool,
    /// Show so many untested combinations of each function, as the lines that no run has executed together.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub combinations: usize,
    /// Only lines that were changed since this commit, and how many of these were executed.
    #[arg(long, value_name = "COMMIT",
        conflicts_with_all = ["functions", "combinations", "fail_under_regions", "fail_under_functions", "fail_under_branches"])]
    pub changed_since: Option<String>,
    /// What is too little.
    #[command(flatten)]
    pub least: CoverageLeast,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How much has to be covered: exit status 1 if it is less.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct CoverageLeast {
    /// Fail if less than this share of the lines was executed.
    #[arg(long, value_name = "PERCENT")]
    pub fail_under_lines: Option<f64>,
    /// Fail if less than this share of the regions was executed.
    #[arg(long, value_name = "PERCENT")]
    pub fail_under_regions: Option<f64>,
    /// Fail if less than this share of the functions was executed.
    #[arg(long, value_name = "PERCENT")]
    pub fail_under_functions: Option<f64>,
    /// Fail if less than this share of the branches was taken.
    #[arg(long, value_name = "PERCENT")]
    pub fail_under_branches: Option<f64>,
}

/// `trodden coverage show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden coverage show --branches
  trodden coverage show tests --html pages && xdg-open pages/index.html
  trodden coverage show --function parse")]
pub struct CoverageShow {
    /// Of what.
    #[command(flatten)]
    pub covered: Covered,
    /// Write pages for browsers into this folder.
    #[arg(long, value_name = "FOLDER")]
    pub html: Option<PathBuf>,
    /// Only functions whose name this regular expression matches.
    #[arg(long, short, value_name = "REGEX")]
    pub function: Option<String>,
    /// Also how often each branch was taken.
    #[arg(long)]
    pub branches: bool,
    /// Also the conditions of each decision (MC/DC), of a program built with `--coverage=mcdc`.
    #[arg(long)]
    pub mcdc: bool,
    /// Sources compiled in the folder FROM are now in TO.
    #[arg(long, value_name = "FROM,TO")]
    pub path_equivalence: Option<String>,
}

/// A form that other tools read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoverageFormat {
    /// JSON in the schema of `llvm-cov export`.
    Json,
    /// A tracefile of lcov.
    Lcov,
}

/// `trodden coverage export`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden coverage export --format lcov -o lcov.info
  trodden coverage export tests --format json --summary-only")]
pub struct CoverageExport {
    /// Of what.
    #[command(flatten)]
    pub covered: Covered,
    /// The form.
    #[arg(long, value_enum, default_value_t = CoverageFormat::Json)]
    pub format: CoverageFormat,
    /// Sums by file only.
    #[arg(long)]
    pub summary_only: bool,
    /// Where to write; by default standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `trodden coverage diff`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden coverage diff last~1 last
  trodden coverage diff unit-tests all-tests --json

Both profiles must be of one build. With --fail, the exit status is 1 if the second lacks a line that the first has executed.")]
pub struct CoverageDiff {
    /// The first profile: a file, a run, or a suite.
    pub before: String,
    /// The second.
    pub after: String,
    /// Which files.
    #[command(flatten)]
    pub files: CoveredFiles,
    /// Fail if the second lacks a line that the first has.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
