//! `trodden advise`: suggests optimisations based on a profile's paths. `trodden_analysis::advise` finds them, `trodden-report` formats
//! them.

use crate::cli::{AdviseArguments, Color};
use crate::commands::remarks;
use crate::context::driver_context;
use crate::notes::{list_names, note};
use crate::output;
use crate::rust_sources;
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use anyhow::Result;
use std::process::ExitCode;
use trodden_analysis::advise::AdviceKind;
use trodden_analysis::sequences::IterationPattern;
use trodden_driver::properties::{self, KnownProperties};
use trodden_report::advice::{AdviceSelection, json, sarif, text};
use trodden_report::sarif::append_sarif_log;
use trodden_report::sequences::in_report;
use trodden_report::{Function, ProfileView, SourceCache};
use trodden_stored::named;
use trodden_unit::{Identity, UnitMap};

pub fn run(job: &AdviseArguments, color: Color) -> Result<ExitCode> {
    let selection = build_advice_selection(job)?;
    let profile = named::load_profile(&job.profile)?;
    let view = ProfileView::from_profile(&profile);
    let provider = rust_sources::read_project_or_toolchain_source(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let known = match selection.includes(AdviceKind::Redundant) {
        true => properties::collect(driver_context(), units_of_functions(&selection.functions(&view)?))?,
        false => KnownProperties::default(),
    };
    let advice = selection.advise(&view, &|function| known.properties_of_function(function.unit.unit, function.map))?;
    // Loop patterns need the order of iterations, which only a recorded sequence contains.
    let patterns = if selection.includes(AdviceKind::Loop) { find_iteration_patterns(job)? } else { Vec::new() };
    if let Some(file) = &job.sarif {
        let mut log = sarif::write_advice(&advice, &sources);
        if !patterns.is_empty() {
            append_sarif_log(&mut log, sarif::write_alternating_iterations(&view, &in_report::alternating_iterations(&patterns), &sources));
        }
        output::write_report(file, &output::json_text(&log)?, "the findings are")?;
    } else if job.json {
        let mut document = json::advice_json(&view, &advice, &sources);
        document["iterations"] = serde_json::to_value(&patterns)?;
        output::print(&output::json_text(&document)?)?;
    } else {
        let mut report = text::write_advice(&view, &selection, &advice, &sources, &output::text_options(color, 0)).into_bytes();
        in_report::write_advice(&mut report, &patterns)?;
        output::print_text(&String::from_utf8_lossy(&report))?;
    }
    remarks::warn_of_missing_sources(&view, &sources);
    note_missing_bitcode(&known, &advice.without_bitcode);
    Ok(ExitCode::SUCCESS)
}

fn units_of_functions<'a>(functions: &'a [&Function]) -> impl Iterator<Item = (&'a str, Identity, &'a UnitMap)> {
    functions.iter().map(|function| (&*function.image.path, function.unit.unit, &*function.unit.map))
}

/// Prints a note that lists the functions in which redundant computations could not be looked for, and why.
fn note_missing_bitcode(known: &KnownProperties, functions: &[&Function]) {
    let names: Vec<&str> = functions.iter().map(|f| f.name.short.as_str()).collect();
    if let (false, Some(reason)) = (names.is_empty(), known.missing_reason()) {
        note(format_args!("did not search for redundant computations in {}: {reason}", list_names(&names, 1)));
    }
}

/// Returns repeating patterns of loop iterations. Empty if the run has no stream.
fn find_iteration_patterns(job: &AdviseArguments) -> Result<Vec<IterationPattern>> {
    let Some(sequence) = in_report::load_busiest_thread(&job.profile, &folders()) else { return Ok(Vec::new()) };
    let mut patterns = sequence.patterns()?;
    patterns.retain(|p| job.function.as_ref().is_none_or(|f| p.function == *f));
    patterns.truncate(job.top.filter(|top| *top > 0).unwrap_or(usize::MAX));
    Ok(patterns)
}

fn build_advice_selection(job: &AdviseArguments) -> Result<AdviceSelection> {
    Ok(AdviceSelection {
        function: job.function.clone(),
        kinds: job.kind.clone(),
        top: output::max_results(job.top, job.json || job.sarif.is_some()),
        ..AdviceSelection::default()
    })
}
