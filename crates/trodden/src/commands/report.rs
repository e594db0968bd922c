//! `trodden report`: reports profiles as text, JSON or HTML. For traces and recordings of waits, it calls other modules.

use super::coverage::create_view;
use super::remarks::warn_of_missing_sources;
use super::{trace, waits};
use crate::cli::{Color, ReportArguments};
use crate::output::{json_text, max_results, print, print_text, text_options, write_report};
use crate::rust_sources::read_project_or_toolchain_source;
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use anyhow::Result;
use std::process::ExitCode;
use trodden_report::html::HtmlOptions;
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::sequences::in_report;
use trodden_report::{PathMeasure, PathSelection, ProfileView, SourceCache, callers, events, html, json, text};
use trodden_stored::named;

/// Default maximum number of source lines per path.
const DEFAULT_MAX_LINES_PER_PATH: usize = 40;

pub fn run(job: &ReportArguments, color: Color) -> Result<ExitCode> {
    let kind = InputKind::detect(&job.file)?;
    if kind != InputKind::Waits {
        kind.reject_options(&[("--explain", job.choices.explain)])?;
    }
    match kind {
        InputKind::Profile => report_profile(job, color),
        InputKind::Trace => trace::report(job),
        InputKind::Waits => waits::report(job),
        other => Err(other.not_accepted_error(&job.file, "report")),
    }
}

fn report_profile(job: &ReportArguments, color: Color) -> Result<ExitCode> {
    InputKind::Profile.reject_options(&[("--what-if", !job.what_if.is_empty()), ("--stream", job.stream.is_some())])?;
    let name = require_utf8_name(&job.file)?;
    let (profile, lost) = named::recover_profile(name)?;
    // Only the HTML page shows complete source files, and thus needs the counts of all lines.
    let mut view = if job.html.is_some() { create_view(&profile) } else { ProfileView::from_profile(&profile) };
    view.corrupt.extend(lost);
    let provider = read_project_or_toolchain_source(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let selection = build_path_selection(job);
    events::check_measure(&profile, selection.measure)?;
    let callers = if job.html.is_none() { callers::find_callers(name, &profile, &folders()) } else { None };
    if let Some(file) = &job.html {
        let sequence = in_report::load_busiest_thread(name, &folders()).map(|sequence| sequence.page()).transpose()?.unwrap_or_default();
        let options = HtmlOptions { measure: selection.measure, ..HtmlOptions::default() };
        let page = html::page_with_section(&view, &sources, &options, &sequence);
        write_report(file, page.as_bytes(), "the page is")?;
    } else if job.json {
        let mut document = json::report(&view, &selection, &sources)?;
        if let Some(callers) = callers {
            document["callers"] = callers.json(job.function.as_deref());
        }
        if job.function.is_none()
            && let Some(sequence) = in_report::load_busiest_thread(name, &folders())
        {
            document["sequence"] = sequence.json()?;
        }
        print(&json_text(&document)?)?;
    } else {
        let mut report =
            text::report(&view, &selection, &sources, &text_options(color, job.steps.unwrap_or(DEFAULT_MAX_LINES_PER_PATH)))?.into_bytes();
        if job.function.is_none()
            && let Some(sequence) = in_report::load_busiest_thread(name, &folders())
        {
            sequence.write(&mut report)?;
        }
        if let Some(callers) = callers {
            report.extend(
                callers.text(job.function.as_deref(), selection.top, &text_options(color, DEFAULT_MAX_LINES_PER_PATH)).into_bytes(),
            );
        }
        print_text(&String::from_utf8_lossy(&report))?;
    }
    warn_of_missing_sources(&view, &sources);
    Ok(ExitCode::SUCCESS)
}

fn build_path_selection(job: &ReportArguments) -> PathSelection {
    PathSelection {
        function: job.function.clone(),
        measure: job.measure.unwrap_or(PathMeasure::Instructions),
        top: max_results(job.top, job.json),
        min_share: 0.0,
    }
}
