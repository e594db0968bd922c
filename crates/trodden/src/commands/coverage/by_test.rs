//! `trodden suite order --by lines`: shows the lines and paths that each test adds.

use super::load_coverage_mapping;
use crate::cli::{CoverageFileSelection, SuiteOrderArguments};
use crate::notes::{ProgressMeter, warn};
use crate::output::{json_text, print};
use anyhow::{Context, Result, ensure};
use trodden_coverage::by_test::SuiteCoverageBuilder;
use trodden_coverage::{CoverageMapping, LineExecutions};
use trodden_profile::{Profile, UnitMapsByIdentity};
use trodden_stored::named;

pub fn run(job: &SuiteOrderArguments) -> Result<()> {
    reject_path_options(job)?;
    let include = job.functions.file.iter().map(|place| place.to_string_lossy().into_owned()).collect();
    let files = CoverageFileSelection { object: job.object.clone(), include, ..CoverageFileSelection::default() };
    let runs = named::list_runs_of_suite(&job.suite)?;
    let progress = ProgressMeter::new(runs.len(), "runs");
    let (mut tests, mut maps) = (SuiteCoverageBuilder::default(), UnitMapsByIdentity::new());
    let mut inexact = None;
    for entry in &runs {
        let found = Profile::recover_with_shared_maps(&entry.profile, &mut maps)?;
        named::describe_losses(&entry.profile, &found.lost).iter().for_each(warn);
        let places = files.include.iter().map(|place| format!(" --file {place}")).collect::<String>();
        let run = || format!("run {}{places}", entry.number);
        let mapping = load_coverage_mapping(&found.profile, &files).with_context(run)?;
        tests.add(&found.profile, &LineExecutions::from_mapping(&mapping)?).with_context(run)?;
        inexact = inexact.or_else(|| Some(mapping).filter(CoverageMapping::has_caveats));
        progress.step();
    }
    inexact.iter().for_each(|mapping| mapping.log_inexact_functions(false));
    let tests = tests.into_suite_coverage();
    print(&match (job.json, job.names) {
        (true, _) => json_text(&tests.json(&job.suite))?,
        (_, true) => tests.names().iter().map(|name| format!("{name}\n")).collect::<String>().into_bytes(),
        _ => tests.text().into_bytes(),
    })
}

/// Rejects options that select paths, because they would have no effect on lines.
fn reject_path_options(job: &SuiteOrderArguments) -> Result<()> {
    let options = [
        ("--function", job.functions.function.is_some()),
        ("--except", !job.functions.except.is_empty()),
        ("--changed-since", job.changed_since.is_some()),
    ];
    for (option, is_given) in options {
        ensure!(
            !is_given,
            "{option} does not apply to --by lines. Omit {option}, or use `trodden coverage report SUITE`, which shows lines by \
             function and changed lines"
        );
    }
    Ok(())
}
