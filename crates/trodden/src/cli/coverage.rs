//! The syntax of `trodden coverage`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::laboratory::CoverageChoices;
use trodden_console::arguments::places::place;
use trodden_stored::named::LAST;

/// `trodden coverage`
#[derive(Debug, Subcommand)]
pub enum Coverage {
    /// Show how much of each file was executed: regions, functions, lines, branches, and paths.
    Report(CoverageReport),
    /// Show the sources with the count of each line and region, as text or as pages for browsers.
    Show(CoverageShow),
}

impl Coverage {
    /// Which files.
    pub fn files(&mut self) -> &mut CoveredFiles {
        match self {
            Coverage::Report(job) => &mut job.covered.files,
            Coverage::Show(job) => &mut job.covered.files,
        }
    }
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
    /// Program or library that ran, if it was moved, or one that did not run, which counts as not executed (repeatable).
    #[arg(long, value_name = "FILE")]
    pub object: Vec<PathBuf>,
    /// Show only source files that match this pattern (src, src/*.c) or lie in a folder that does (repeatable). '*': all, also Rust's
    /// standard library and packages that cargo fetched.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// Leave out source files that match this pattern or lie in a folder that does (repeatable).
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: CoverageChoices,
}

/// `trodden coverage report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden coverage report                              the last run
  trodden coverage report tests --functions            all runs of a suite, added up, by function
  trodden coverage report --functions --combinations 5 covered lines that no run has executed together
  trodden coverage report --include src --fail-under lines=80,branches=70
  trodden coverage report all-tests --baseline unit-tests   lines and paths that only one of them has
  trodden coverage report tests --changed-since HEAD~1 only lines that changed since that commit

The program must be built with `trodden build --coverage` (`trodden cc --trodden=coverage`, `cargo trodden build --coverage`).
Paths are those of the optimised code; an untested combination is a path that no run took although some run took each of its edges.")]
pub struct CoverageReport {
    /// Of what.
    #[command(flatten)]
    pub covered: Covered,
    /// Show a row for each function instead of each file, most untested combinations first.
    #[arg(long)]
    pub functions: bool,
    /// Show N untested combinations of each function: lines that no run has executed together.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub combinations: usize,
    /// Show only lines that were changed since this commit, and how many of them were executed.
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["functions", "combinations"])]
    pub changed_since: Option<String>,
    /// Show the lines and paths that only one of this profile, of the same build, and PROFILE has.
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["functions", "combinations", "changed_since"])]
    pub baseline: Option<String>,
    /// Exit with status 1 if less was executed: percentages of lines, regions, functions, branches (lines=80,branches=70), or
    /// `baseline` for a line that only the baseline has.
    #[arg(long, value_name = "MEASURE=PERCENT,..", value_delimiter = ',', value_parser = threshold)]
    pub fail_under: Vec<CoverageThreshold>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What has to be covered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CoverageThreshold {
    /// This share, in percent.
    Share(CoverageMeasure, f64),
    /// Each line that the baseline has.
    Baseline,
}

/// What is measured.
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

/// Reads what has to be covered.
fn threshold(text: &str) -> Result<CoverageThreshold, String> {
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
pub struct CoverageShow {
    /// Of what.
    #[command(flatten)]
    pub covered: Covered,
    /// Write pages for browsers into this folder.
    #[arg(long, value_name = "FOLDER", value_parser = place())]
    pub html: Option<PathBuf>,
    /// Show only functions whose name this regular expression matches.
    #[arg(long, short, value_name = "REGEX")]
    pub function: Option<String>,
    /// Also show how often each branch was taken, and the conditions of decisions of programs built with --coverage=mcdc.
    #[arg(long)]
    pub conditions: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_percentages() {
        assert_eq!(threshold("lines=80"), Ok(CoverageThreshold::Share(CoverageMeasure::Lines, 80.0)));
        assert_eq!(threshold("branches=7.5%"), Ok(CoverageThreshold::Share(CoverageMeasure::Branches, 7.5)));
        assert_eq!(threshold("baseline"), Ok(CoverageThreshold::Baseline));
        for wrong in ["", "80", "lines", "lines=", "lines=180", "lines=-1", "lines=NaN", "paths=50"] {
            assert!(threshold(wrong).is_err(), "{wrong}");
        }
    }
}
