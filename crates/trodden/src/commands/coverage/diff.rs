//! `trodden coverage report --baseline`: shows lines and paths that only one of two profiles executed.

use super::load_coverage_mapping;
use crate::cli::{CoverageReportArguments, CoverageThreshold};
use crate::output::{json_text, print};
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_coverage::LineExecutions;
use trodden_coverage::diff::{CoverageDifference, NamedCoverage};
use trodden_stored::named;

/// Exit status if a line that the baseline executed was not executed.
const LESS_THAN_BASELINE_EXIT_STATUS: u8 = 1;

pub fn run(job: &CoverageReportArguments, baseline: &str) -> Result<ExitCode> {
    let thresholds = &job.fail_under;
    ensure!(
        thresholds.iter().all(|threshold| *threshold == CoverageThreshold::Baseline),
        "with --baseline, --fail-under accepts only `baseline`. Check percentages in a separate report"
    );
    let (name, files) = (&job.covered.profile, &job.covered.files);
    let (before, after) = (named::load_profile(baseline)?, named::load_profile(name)?);
    let mappings = [load_coverage_mapping(&before, files)?, load_coverage_mapping(&after, files)?];
    let (first, second) = (LineExecutions::from_mapping(&mappings[0])?, LineExecutions::from_mapping(&mappings[1])?);
    let difference = CoverageDifference::new(
        &NamedCoverage { name: baseline, profile: &before, lines: &first },
        &NamedCoverage { name, profile: &after, lines: &second },
    )?;
    match job.json {
        true => print(&json_text(&difference.json())?)?,
        false => print(difference.text().as_bytes())?,
    }
    mappings.iter().for_each(|mapping| mapping.log_inexact_functions(false));
    Ok(if !thresholds.is_empty() && difference.has_lost_lines() {
        ExitCode::from(LESS_THAN_BASELINE_EXIT_STATUS)
    } else {
        ExitCode::SUCCESS
    })
}
