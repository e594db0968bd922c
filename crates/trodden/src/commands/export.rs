//! `trodden export`: a profile in the format of another tool. What is written is made by the crate `trodden-report`.

use super::coverage::view_of;
use super::remarks::{left_out, report_partial};
use crate::cli::{Export, Format};
use crate::context::context;
use crate::output::{json_text, write_or_print};
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_analysis::residual::known_to;
use trodden_coverage::Files;
use trodden_driver::profdata;
use trodden_report::html::{self, HtmlOptions};
use trodden_report::source_files::{locate, sources};
use trodden_report::view::MappedLines;
use trodden_report::{Selection, SourceCache, View, events, folded, json, lcov, pprof};
use trodden_stored::named;

/// Writes the export.
///
/// # Errors
/// There is no such profile or function, or the file cannot be written.
pub fn run(job: &Export) -> Result<ExitCode> {
    ensure!(job.program.is_none() || job.format == Format::Known, "--for is for `trodden export known`");
    let of_files = !job.include.is_empty() || !job.exclude.is_empty() || job.relative_to.is_some();
    ensure!(!of_files || job.format == Format::Lcov, "--include, --exclude and --relative-to are for `trodden export lcov`");
    let profile = named::load(&job.profile)?;
    let view = if matches!(job.format, Format::Html | Format::Lcov) { view_of(&profile) } else { View::from_profile(&profile) };
    let provider = sources(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let selection = Selection { function: job.function.clone(), measure: job.measure, top: usize::MAX, min_share: 0.0 };
    events::check(&profile, selection.measure)?;
    let bytes = match job.format {
        Format::Profdata => profdata::indexed(context(), &profile)?,
        Format::Proftext => profdata::text(&profile)?,
        Format::Folded => folded::folded(&view, &selection)?.into_bytes(),
        Format::Pprof => pprof::pprof(&view, &selection)?,
        Format::Lcov => coverage(job, &view, &selection)?.into_bytes(),
        Format::Json => json_text(&json::report(&view, &selection, &sources)?)?,
        Format::Weights => profile.weights()?.to_bytes(),
        Format::Known => match &job.program {
            Some(program) => known_to(program, &profile.known_paths()?, &folders())?,
            None => profile.known_paths()?.to_bytes(),
        },
        Format::Html => html::page(&view, &sources, &HtmlOptions { measure: selection.measure, ..HtmlOptions::default() }).into_bytes(),
    };
    // The others say so themselves, or have a place for it.
    if !matches!(job.format, Format::Json | Format::Html) {
        report_partial(&profile);
    }
    write_or_print(job.output.as_deref().filter(|file| file.as_os_str() != "-"), &bytes)?;
    Ok(ExitCode::SUCCESS)
}

/// A tracefile of the files that are wanted and there.
fn coverage(job: &Export, view: &View, selection: &Selection) -> Result<String> {
    let files = Files::new(&job.include, &job.exclude, job.relative_to.as_deref())?;
    let run = &view.profile.run;
    let found = locate(&source_folders(), &run.directory);
    // Lines of some functions only are not known of the mapping.
    let mapped = if job.function.is_none() { view.mapped.clone() } else { MappedLines::new() };
    let name = |path: &str| files.name(path, found(path));
    let text = lcov::lcov(selection.functions(view)?, &mapped, run.suite.as_deref().unwrap_or("trodden"), &name);
    left_out(&files);
    Ok(text)
}
