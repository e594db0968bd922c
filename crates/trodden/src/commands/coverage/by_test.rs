//! `trodden suite coverage`: the lines and paths that each test adds.

use super::mapping_of;
use crate::cli::SuiteCoverage;
use crate::notes::{Progress, warn};
use crate::output::{json_text, print};
use anyhow::{Context, Result};
use trodden_coverage::by_test::{CoverageOfTests, TestCoverageReport, changed_lines};
use trodden_coverage::{CoverageMapping, Lines};
use trodden_profile::{Maps, Profile};
use trodden_stored::named;

/// Prints the lines and paths that each test of a suite adds.
pub fn run(job: &SuiteCoverage) -> Result<()> {
    let runs = named::runs_of_suite(&job.suite)?;
    let changes = job.changed_since.as_deref().map(changed_lines).transpose()?;
    let progress = Progress::new(runs.len(), "runs");
    let (mut tests, mut maps) = (CoverageOfTests::default(), Maps::new());
    let mut inexact = None;
    for entry in &runs {
        let found = Profile::recover_sharing(&entry.profile, &mut maps)?;
        named::describe_losses(&entry.profile, &found.lost).iter().for_each(warn);
        let run = || format!("run {}", entry.number);
        let mapping = mapping_of(&found.profile, &job.files).with_context(run)?;
        let mut lines = Lines::from_mapping(&mapping)?;
        changes.iter().for_each(|changes| lines.keep_changed(changes));
        tests.add(&found.profile, &lines).with_context(run)?;
        inexact = inexact.or_else(|| Some(mapping).filter(CoverageMapping::has_caveats));
        progress.step();
    }
    inexact.iter().for_each(|mapping| mapping.note_caveats(false));
    match tests.report(&job.suite, job.json, job.lines) {
        TestCoverageReport::Json(document) => print(&json_text(&document)?),
        TestCoverageReport::Text(text) => print(text.as_bytes()),
    }
}
