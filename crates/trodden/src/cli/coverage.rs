//! Syntax of `trodden coverage`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::laboratory::CoverageChoices;
use trodden_console::arguments::places::output_path;
use trodden_stored::named::LAST_RUN_NAME;

/// `trodden coverage`
#[derive(Debug, Subcommand)]
pub enum CoverageCommand {
    /// Show how much of each file was executed: regions, functions, lines, branches, paths.
    Report(CoverageReportArguments),
    /// Show the sources with the count of each line and region, as text or HTML pages.
    Show(CoverageShowArguments),
}

impl CoverageCommand {
    /// Returns the selection of source files.
    pub fn file_selection_mut(&mut self) -> &mut CoverageFileSelection {
        match self {
            CoverageCommand::Report(job) => &mut job.covered.files,
            CoverageCommand::Show(job) => &mut job.covered.files,
        }
    }
}

/// Profile and source files whose coverage is shown.
#[derive(Debug, Args)]
pub struct CoverageInputArguments {
    /// Profile: a file, run (12, last, last~1) or suite.
    #[arg(default_value = LAST_RUN_NAME)]
    pub profile: String,
    /// Selection of source files.
    #[command(flatten)]
    pub files: CoverageFileSelection,
}

/// Selection of a program's source files.
#[derive(Clone, Debug, Default, Args)]
pub struct CoverageFileSelection {
    /// Program or library that has moved or did not run (repeatable).
    ///
    /// The code of a program that did not run is shown as not executed.
    #[arg(long, value_name = "FILE")]
    pub object: Vec<PathBuf>,
    /// Only source files that match this pattern (repeatable).
    ///
    /// Examples: src (a folder), 'src/*.c', '*' for all. Rust's standard library and packages fetched by cargo are shown only with '*'.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Leave out source files that match this pattern (repeatable).
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: CoverageChoices,
}

/// `trodden coverage report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden coverage report                                the last run
  trodden coverage report tests --functions              all runs of a suite, by function
  trodden coverage report --functions --combinations 5   lines that no run executed together
  trodden coverage report --include src --fail-under lines=80,branches=70
  trodden coverage report all-tests --baseline unit-tests   lines and paths of only one of them
  trodden coverage report tests --changed-since HEAD~1   only lines changed since that commit

The program must be built with `trodden build --coverage`, `trodden cc --trodden=coverage` or
`cargo trodden build --coverage`. Paths are those of the optimised code. An untested combination is
a path that no run took, although each of its edges was taken.")]
pub struct CoverageReportArguments {
    /// Profile and source files.
    #[command(flatten)]
    pub covered: CoverageInputArguments,
    /// Show a row per function instead of per file.
    #[arg(long)]
    pub functions: bool,
    /// Show N untested combinations of lines per function.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub combinations: usize,
    /// Show only lines that were changed since this commit.
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["functions", "combinations"])]
    pub changed_since: Option<String>,
    /// Compare with PROFILE: show what only one of them executed.
    ///
    /// Shows the lines and paths that only this profile or only PROFILE executed.
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["functions", "combinations", "changed_since"])]
    pub baseline: Option<String>,
    /// Exit with status 1 if coverage is below these percentages.
    ///
    /// Example: lines=80,branches=70. Measures are lines, regions, functions and branches; `baseline` requires each line that the baseline
    /// executed.
    #[arg(long, value_name = "MEASURE=PERCENT,..", value_delimiter = ',', value_parser = parse_coverage_threshold)]
    pub fail_under: Vec<CoverageThreshold>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A condition of `--fail-under`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CoverageThreshold {
    /// At least this percentage of the measure.
    Share(CoverageMeasure, f64),
    /// Each line that the baseline executed.
    Baseline,
}

/// A measure of coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoverageMeasure {
    /// Lines.
    Lines,
    /// Regions.
    Regions,
    /// Functions.
    Functions,
    /// Branches.
    Branches,
}

/// Parses one condition of `--fail-under`.
fn parse_coverage_threshold(text: &str) -> Result<CoverageThreshold, String> {
    if text == "baseline" {
        return Ok(CoverageThreshold::Baseline);
    }
    let expected = || "expected lines=, regions=, functions= or branches= with a percentage, or baseline".to_owned();
    let (measure, percent) = text.split_once('=').ok_or_else(expected)?;
    let measure = CoverageMeasure::from_str(measure, false).map_err(|_| expected())?;
    match percent.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(CoverageThreshold::Share(measure, percent)),
        _ => Err(format!("`{percent}` must be a percentage between 0 and 100")),
    }
}

/// `trodden coverage show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden coverage show --conditions
  trodden coverage show tests --html pages && xdg-open pages/index.html
  trodden coverage show --function parse")]
pub struct CoverageShowArguments {
    /// Profile and source files.
    #[command(flatten)]
    pub covered: CoverageInputArguments,
    /// Write HTML pages into this folder.
    #[arg(long, value_name = "FOLDER", value_parser = output_path())]
    pub html: Option<PathBuf>,
    /// Only functions whose name matches this regular expression.
    #[arg(long, short, value_name = "REGEX")]
    pub function: Option<String>,
    /// Also show branch counts, and conditions (with --coverage=mcdc).
    #[arg(long)]
    pub conditions: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_must_be_percentages_of_known_measures() {
        assert_eq!(parse_coverage_threshold("lines=80"), Ok(CoverageThreshold::Share(CoverageMeasure::Lines, 80.0)));
        assert_eq!(parse_coverage_threshold("branches=7.5%"), Ok(CoverageThreshold::Share(CoverageMeasure::Branches, 7.5)));
        assert_eq!(parse_coverage_threshold("baseline"), Ok(CoverageThreshold::Baseline));
        for wrong in ["", "80", "lines", "lines=", "lines=180", "lines=-1", "lines=NaN", "paths=50"] {
            assert!(parse_coverage_threshold(wrong).is_err(), "{wrong}");
        }
    }
}
