//! `trodden coverage report`: a row for each file or function, and thresholds.

use super::load;
use crate::cli::{Color, CoverageLeast, CoverageReport};
use crate::commands::remarks::report_partial;
use crate::notes::{note, warn};
use crate::output::{json_text, print_found, text_options};
use anyhow::{Result, bail};
use std::process::ExitCode;
use trodden_coverage::tables::{by_changed_lines, by_file, by_function};
use trodden_report::View;
use trodden_report::coverage::{CoverageRatio, CoverageRow};

/// Exit status when a threshold is not reached.
const EXCEEDED: u8 = 1;

/// Shows the table.
///
/// # Errors
/// As of [`load`]; there is no such commit; a share is none.
pub fn run(job: &CoverageReport) -> Result<ExitCode> {
    job.least.check()?;
    let (profile, mapping) = load(&job.covered)?;
    let view = View::from_profile(&profile);
    view.damaged.iter().for_each(warn);
    let table = match (&job.changed_since, job.functions || job.combinations > 0) {
        (Some(commit), _) => by_changed_lines(&mapping, commit)?,
        (None, true) => by_function(&mapping, &view, job.combinations)?,
        (None, false) => by_file(&mapping, &view)?,
    };
    print_found(job.json, || json_text(&table.json()), || Ok(table.text(&text_options(Color::Auto, 0))))?;
    report_partial(&profile);
    mapping.note_caveats(true);
    let failed = job.least.missed(&table.total);
    failed.iter().for_each(note);
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXCEEDED) })
}

/// A measure with its option, its least value in per cent, and its share of a row.
type Threshold = (&'static str, &'static str, Option<f64>, fn(&CoverageRow) -> Option<CoverageRatio>);

impl CoverageLeast {
    fn all(&self) -> [Threshold; 4] {
        [
            ("lines", "--fail-under-lines", self.fail_under_lines, |r| r.lines),
            ("regions", "--fail-under-regions", self.fail_under_regions, |r| Some(r.regions)),
            ("functions", "--fail-under-functions", self.fail_under_functions, |r| r.functions),
            ("branches", "--fail-under-branches", self.fail_under_branches, |r| Some(r.branches)),
        ]
    }

    fn check(&self) -> Result<()> {
        for (_, option, least, _) in self.all() {
            if let Some(percent) = least.filter(|p| !(0.0..=100.0).contains(p)) {
                bail!("{option} {percent} is no share: give per cent, from 0 to 100");
            }
        }
        Ok(())
    }

    /// What is too little, in words.
    fn missed(&self, total: &CoverageRow) -> Vec<String> {
        let missed = |(what, option, least, of): Threshold| {
            let (least, share) = (least?, of(total)?);
            let found = share.percent();
            (found < least).then(|| format!("{found:.2} % of the {what} are covered, less than {least} ({option})"))
        };
        self.all().into_iter().filter_map(missed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_shares() {
        let least = CoverageLeast { fail_under_lines: Some(80.0), fail_under_regions: Some(50.0), ..CoverageLeast::default() };
        let total = CoverageRow {
            lines: Some(CoverageRatio { all: 10, hit: 7 }),
            regions: CoverageRatio { all: 2, hit: 1 },
            ..CoverageRow::default()
        };
        assert_eq!(least.missed(&total), ["70.00 % of the lines are covered, less than 80 (--fail-under-lines)"]);
        assert!(CoverageLeast { fail_under_lines: Some(180.0), ..CoverageLeast::default() }.check().is_err());
    }
}
