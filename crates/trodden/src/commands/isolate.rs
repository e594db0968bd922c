//! `trodden isolate`: ranks the paths that distinguish failing runs from passing ones.

use crate::cli::{Color, IsolateArguments};
use crate::commands::remarks;
use crate::output;
use crate::rust_sources;
use crate::surroundings::source_folders;
use anyhow::{Result, bail};
use std::process::ExitCode;
use trodden_analysis::compared_runs::{ComparedRuns, read_compared_runs};
use trodden_analysis::isolate::SuspiciousnessFormula;
use trodden_report::isolation::{RankedSuspects, SuspectSelection};
use trodden_report::{ProfileView, SourceCache};

pub fn run(job: &IsolateArguments, color: Color) -> Result<ExitCode> {
    let compared = ComparedRuns { runs: &job.runs, failing: &job.failing, passing: &job.passing, program: job.program.as_deref() };
    let (isolation, profile) = read_compared_runs(&compared)?;
    let runs = isolation.runs();
    if runs.failing == 0 || runs.passing == 0 {
        bail!(
            "the comparison needs failing and passing runs, but there are {} failing and {} passing (a run fails if its exit status is not \
             0 or a signal ended it). To classify runs differently, use --failing and --passing",
            runs.failing,
            runs.passing
        );
    }
    let view = ProfileView::from_profile(&profile);
    let provider = rust_sources::read_project_or_toolchain_source(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let suspects = RankedSuspects::new(
        &isolation,
        &view,
        &SuspectSelection {
            formula: job.choices.score.unwrap_or(SuspiciousnessFormula::Ochiai),
            top: output::max_results(job.top, job.json),
            function: job.function.as_deref(),
        },
    )?;
    let text = || Ok(suspects.text(&sources, &output::text_options(color, output::DEFAULT_STEPS)));
    output::print_result(job.json, || output::json_text(&suspects.json()), text)?;
    remarks::warn_of_inexact_counts(&profile);
    remarks::warn_of_missing_sources(&view, &sources);
    Ok(ExitCode::SUCCESS)
}
