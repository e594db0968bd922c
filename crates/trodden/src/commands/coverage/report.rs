//! `trodden coverage report`: prints a table of files or functions, and checks thresholds.

use super::{diff, load_profile_and_mapping};
use crate::cli::{Color, CoverageMeasure, CoverageReportArguments, CoverageThreshold, word};
use crate::commands::remarks::warn_of_inexact_counts;
use crate::notes::{note, warn};
use crate::output::{json_text, print_result, text_options};
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_coverage::tables::{coverage_by_changed_lines, coverage_by_file, coverage_by_function};
use trodden_report::ProfileView;
use trodden_report::coverage::CoverageRow;

/// Exit status if coverage is below a threshold.
const BELOW_THRESHOLD_EXIT_STATUS: u8 = 1;

pub fn run(job: &CoverageReportArguments) -> Result<ExitCode> {
    if let Some(baseline) = &job.baseline {
        return diff::run(job, baseline);
    }
    check_thresholds(job)?;
    let (profile, mapping) = load_profile_and_mapping(&job.covered)?;
    let view = ProfileView::from_profile(&profile);
    view.corrupt.iter().for_each(warn);
    let table = match (&job.changed_since, job.functions || job.combinations > 0) {
        (Some(commit), _) => coverage_by_changed_lines(&mapping, commit)?,
        (None, true) => coverage_by_function(&mapping, &view, job.combinations)?,
        (None, false) => coverage_by_file(&mapping, &view)?,
    };
    print_result(job.json, || json_text(&table.json()), || Ok(table.text(&text_options(Color::Auto, 0))))?;
    warn_of_inexact_counts(&profile);
    mapping.log_inexact_functions(true);
    let failed = describe_missed_thresholds(&job.fail_under, &table.total);
    failed.iter().for_each(note);
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BELOW_THRESHOLD_EXIT_STATUS) })
}

fn check_thresholds(job: &CoverageReportArguments) -> Result<()> {
    let is_of_lines = |threshold: &CoverageThreshold| matches!(threshold, CoverageThreshold::Share(CoverageMeasure::Lines, _));
    ensure!(
        !job.fail_under.contains(&CoverageThreshold::Baseline),
        "--fail-under baseline needs a profile to compare with. Add --baseline PROFILE"
    );
    ensure!(
        job.changed_since.is_none() || job.fail_under.iter().all(is_of_lines),
        "--fail-under must be lines=PERCENT with --changed-since, which reports only lines"
    );
    Ok(())
}

fn describe_missed_thresholds(thresholds: &[CoverageThreshold], total: &CoverageRow) -> Vec<String> {
    let missed = |threshold: &CoverageThreshold| {
        let CoverageThreshold::Share(measure, min) = *threshold else { return None };
        let share = match measure {
            CoverageMeasure::Lines => total.lines?,
            CoverageMeasure::Regions => total.regions,
            CoverageMeasure::Functions => total.functions?,
            CoverageMeasure::Branches => total.branches,
        };
        let found = share.percent();
        let what = word(measure);
        (found < min).then(|| format!("{found:.2}% of the {what} are covered, less than {min}% (--fail-under {what}={min})"))
    };
    thresholds.iter().filter_map(missed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_report::coverage::CoverageRatio;

    #[test]
    fn message_names_each_missed_threshold() {
        let least = [CoverageThreshold::Share(CoverageMeasure::Lines, 80.0), CoverageThreshold::Share(CoverageMeasure::Regions, 50.0)];
        let total = CoverageRow {
            lines: Some(CoverageRatio { all: 10, hit: 7 }),
            regions: CoverageRatio { all: 2, hit: 1 },
            ..CoverageRow::default()
        };
        assert_eq!(describe_missed_thresholds(&least, &total), ["70.00% of the lines are covered, less than 80% (--fail-under lines=80)"]);
    }
}
