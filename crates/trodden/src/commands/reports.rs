//! Commands that show stored profiles: `report`, `annotate`, `export`. What they print is made by the crate `trodden-report`.

use crate::cli::{Annotate, Color, Export, Format, Report, Shown};
use crate::commands::coverage::{files::Files, mapped_lines};
use crate::commands::remarks::{left_out, remarks, tell_partial};
use crate::commands::residual;
use crate::commands::sequences::in_report;
use crate::driver::profdata;
use crate::notes::{note, reasons, warn};
use crate::output::{json_text, most, print, print_text, text_options, write_file};
use crate::profiles;
use crate::sources::{locate, sources};
use anyhow::{Result, ensure};
use std::process::ExitCode;
use trodden_profile::Profile;
use trodden_report::annotate::Request;
use trodden_report::html::HtmlOptions;
use trodden_report::view::MappedLines;
use trodden_report::{Selection, SourceCache, View, annotate, events, folded, html, json, lcov, pprof, text};

/// `trodden report`
///
/// # Errors
/// There is no such profile or function.
pub fn report(job: &Report, color: Color) -> Result<ExitCode> {
    let (profile, lost) = profiles::recover(&job.profile)?;
    // Only the page shows whole sources.
    let mut view = if job.html.is_some() { view_of(&profile) } else { View::of(&profile) };
    view.damaged.extend(lost);
    let provider = sources(&job.source, &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let selection = selection(&job.shown, job.json);
    events::check(&profile, selection.measure)?;
    if let Some(file) = &job.html {
        let sequence = in_report::of_profile(&job.profile).map(|sequence| sequence.page()).transpose()?.unwrap_or_default();
        let options = HtmlOptions { measure: selection.measure, ..HtmlOptions::default() };
        let page = html::page_with_section(&view, &sources, &options, &sequence);
        write_file(file, page.as_bytes())?;
        note(format_args!("the page is in {}", file.display()));
    } else if job.json {
        let mut document = json::report(&view, &selection, &sources)?;
        if job.shown.function.is_none()
            && let Some(sequence) = in_report::of_profile(&job.profile)
        {
            document["sequence"] = sequence.json()?;
        }
        print(&json_text(&document)?)?;
    } else {
        let mut report = text::report(&view, &selection, &sources, &text_options(color, job.steps))?.into_bytes();
        if job.shown.function.is_none()
            && let Some(sequence) = in_report::of_profile(&job.profile)
        {
            sequence.write(&mut report)?;
        }
        print(&report)?;
    }
    remarks(&view, &sources);
    Ok(ExitCode::SUCCESS)
}

/// `trodden annotate FUNCTION`
///
/// # Errors
/// There is no such profile, function or path.
pub fn annotate(job: &Annotate, color: Color) -> Result<ExitCode> {
    let (profile, lost) = profiles::recover(&job.profile)?;
    let mut view = view_of(&profile);
    view.damaged.extend(lost);
    let provider = sources(&job.source, &profile.run.directory);
    let sources = SourceCache::new(&provider);
    events::check(&profile, job.measure.measure())?;
    if !job.json {
        tell_partial(&profile);
    }
    let request = Request { function: job.function.clone(), path: job.path, measure: job.measure.measure() };
    if job.json {
        print(&json_text(&json::annotate(&view, &request, &sources)?)?)?;
    } else {
        print_text(&annotate::annotate(&view, &request, &sources, &text_options(color, 0))?)?;
    }
    remarks(&view, &sources);
    Ok(ExitCode::SUCCESS)
}

/// `trodden export`
///
/// # Errors
/// There is no such profile or function, or the file cannot be written.
pub fn export(job: &Export) -> Result<ExitCode> {
    ensure!(job.program.is_none() || job.format == Format::Known, "--for is for `trodden export known`");
    let of_files = !job.include.is_empty() || !job.exclude.is_empty() || job.relative_to.is_some();
    ensure!(!of_files || job.format == Format::Lcov, "--include, --exclude and --relative-to are for `trodden export lcov`");
    let profile = profiles::load(&job.profile)?;
    let view = if matches!(job.format, Format::Html | Format::Lcov) { view_of(&profile) } else { View::of(&profile) };
    let provider = sources(&job.source, &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let selection = Selection { function: job.function.clone(), measure: job.measure.measure(), top: usize::MAX, min_share: 0.0 };
    events::check(&profile, selection.measure)?;
    let bytes = match job.format {
        Format::Profdata => profdata::indexed(&profile)?,
        Format::Proftext => profdata::text(&profile)?,
        Format::Folded => folded::folded(&view, &selection)?.into_bytes(),
        Format::Pprof => pprof::pprof(&view, &selection)?,
        Format::Lcov => coverage(job, &view, &selection)?.into_bytes(),
        Format::Json => json_text(&json::report(&view, &selection, &sources)?)?,
        Format::Weights => profile.weights()?.to_bytes(),
        Format::Known => match &job.program {
            Some(program) => residual::known_to(program, &profile.known_paths()?)?,
            None => profile.known_paths()?.to_bytes(),
        },
        Format::Html => html::page(&view, &sources, &HtmlOptions { measure: selection.measure, ..HtmlOptions::default() }).into_bytes(),
    };
    // The others say so themselves, or have a place for it.
    if !matches!(job.format, Format::Json | Format::Html) {
        tell_partial(&profile);
    }
    match &job.output {
        Some(file) if file.as_os_str() != "-" => write_file(file, &bytes)?,
        _ => print(&bytes)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A profile made ready for showing, with counts of lines from the mapping for coverage, if its program has one.
fn view_of(profile: &Profile) -> View<'_> {
    let mut view = View::of(profile);
    match mapped_lines(profile) {
        Ok(lines) => view.mapped = lines,
        Err(error) => warn(format_args!("counts of lines are those of debug information: {}", reasons(&error))),
    }
    view
}

/// A tracefile of the files that are wanted and there.
fn coverage(job: &Export, view: &View, selection: &Selection) -> Result<String> {
    let files = Files::new(&job.include, &job.exclude, job.relative_to.as_deref())?;
    let run = &view.profile.run;
    let found = locate(&job.source, &run.directory);
    // Lines of some functions only are not known of the mapping.
    let mapped = if job.function.is_none() { view.mapped.clone() } else { MappedLines::new() };
    let name = |path: &str| files.name(path, found(path));
    let text = lcov::lcov(selection.functions(view)?, &mapped, run.suite.as_deref().unwrap_or("trodden"), &name);
    left_out(&files);
    Ok(text)
}

fn selection(shown: &Shown, json: bool) -> Selection {
    let top = most(shown.top, json);
    Selection { function: shown.function.clone(), measure: shown.measure.measure(), top, min_share: shown.min_share / 100.0 }
}
