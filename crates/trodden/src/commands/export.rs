//! `trodden export`: converts data to the formats of other tools. Most conversions are in the crate `trodden-report`.

use super::coverage::{ALL_SOURCE_FILES_PATTERN, create_view, render_lcov_of_coverage_mapping, render_llvm_json};
use super::remarks::{note_missing_files, warn_of_inexact_counts};
use super::{trace, waits};
use crate::cli::{CoverageFileSelection, ExportArguments, ExportFormat, word};
use crate::context::driver_context;
use crate::output::{json_text, write_or_print};
use crate::rust_sources::read_project_or_toolchain_source;
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use anyhow::{Result, ensure};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use trodden_analysis::residual::build_known_file;
use trodden_coverage::{FilePatterns, has_coverage_mapping};
use trodden_driver::profdata;
use trodden_report::html::{self, HtmlOptions};
use trodden_report::input_kind::{InputKind, require_utf8_name};
use trodden_report::source_files::locate;
use trodden_report::view::MappedLines;
use trodden_report::{PathMeasure, PathSelection, ProfileView, SourceCache, events, folded, json, lcov, pprof};
use trodden_stored::named;

pub fn run(job: &ExportArguments) -> Result<ExitCode> {
    let kind = InputKind::detect(&job.file)?;
    let formats: &[ExportFormat] = match kind {
        InputKind::Profile => &PROFILE_FORMATS,
        InputKind::Trace => &[ExportFormat::Folded, ExportFormat::Html, ExportFormat::Chrome, ExportFormat::Addresses],
        InputKind::Waits => &[ExportFormat::Chrome],
        other => return Err(other.not_accepted_error(&job.file, "export")),
    };
    let names = || formats.iter().map(|format| word(*format)).collect::<Vec<_>>().join(", ");
    ensure!(formats.contains(&job.format), "cannot export {} as `{}`: use one of {}", kind.noun_phrase(), word(job.format), names());
    if kind != InputKind::Trace {
        kind.reject_options(&[("--ignore", !job.ignore.is_empty()), ("--thread", job.thread.is_some())])?;
    }
    if kind != InputKind::Profile {
        kind.reject_options(&[
            ("--function", job.function.is_some()),
            ("--include", !job.include.is_empty()),
            ("--exclude", !job.exclude.is_empty()),
            ("--relative-to", job.relative_to.is_some()),
            ("--object", !job.object.is_empty()),
            ("--measure", job.measure.is_some()),
            ("--for", job.program.is_some()),
        ])?;
    }
    match kind {
        InputKind::Trace => trace::export(job),
        InputKind::Waits => waits::export(job),
        _ => export_profile(job),
    }
}

const PROFILE_FORMATS: [ExportFormat; 10] = [
    ExportFormat::Folded,
    ExportFormat::Pprof,
    ExportFormat::Lcov,
    ExportFormat::LlvmJson,
    ExportFormat::Json,
    ExportFormat::Html,
    ExportFormat::Weights,
    ExportFormat::Known,
    ExportFormat::Profdata,
    ExportFormat::Proftext,
];

fn reject_options_of_other_formats(job: &ExportArguments) -> Result<()> {
    const COVERAGE_FORMATS: &[ExportFormat] = &[ExportFormat::Lcov, ExportFormat::LlvmJson];
    let options: [(&str, bool, &[ExportFormat]); 7] = [
        ("--function", job.function.is_some(), &[ExportFormat::Folded, ExportFormat::Pprof, ExportFormat::Lcov, ExportFormat::Json]),
        ("--measure", job.measure.is_some(), &[ExportFormat::Folded, ExportFormat::Pprof, ExportFormat::Json, ExportFormat::Html]),
        ("--include", !job.include.is_empty(), COVERAGE_FORMATS),
        ("--exclude", !job.exclude.is_empty(), COVERAGE_FORMATS),
        ("--object", !job.object.is_empty(), COVERAGE_FORMATS),
        ("--relative-to", job.relative_to.is_some(), &[ExportFormat::Lcov]),
        ("--for", job.program.is_some(), &[ExportFormat::Known]),
    ];
    for (option, is_given, formats) in options {
        let names = || formats.iter().map(|format| word(*format)).collect::<Vec<_>>().join(", ");
        ensure!(!is_given || formats.contains(&job.format), "{option} does not apply to `{}`, only to {}", word(job.format), names());
    }
    Ok(())
}

/// Fails if binary data would be written to a terminal, unless `-o -` requests that.
fn reject_binary_output_to_terminal(job: &ExportArguments) -> Result<()> {
    const BINARY_FORMATS: [ExportFormat; 4] = [ExportFormat::Pprof, ExportFormat::Profdata, ExportFormat::Weights, ExportFormat::Known];
    let goes_to_terminal = job.output.is_none() && BINARY_FORMATS.contains(&job.format) && std::io::stdout().is_terminal();
    ensure!(!goes_to_terminal, "`{}` is a binary format, which should not be printed to a terminal. Add -o FILE", word(job.format));
    Ok(())
}

fn export_profile(job: &ExportArguments) -> Result<ExitCode> {
    reject_options_of_other_formats(job)?;
    reject_binary_output_to_terminal(job)?;
    let profile = named::load_profile(require_utf8_name(&job.file)?)?;
    let view = if job.format == ExportFormat::Html { create_view(&profile) } else { ProfileView::from_profile(&profile) };
    let provider = read_project_or_toolchain_source(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let selection = PathSelection {
        function: job.function.clone(),
        measure: job.measure.unwrap_or(PathMeasure::Instructions),
        top: usize::MAX,
        min_share: 0.0,
    };
    events::check_measure(&profile, selection.measure)?;
    let bytes = match job.format {
        ExportFormat::Profdata => profdata::to_indexed_format(driver_context(), &profile)?,
        ExportFormat::Proftext => profdata::to_text_format(&profile)?,
        ExportFormat::Folded => folded::write_folded_stacks(&view, &selection)?.into_bytes(),
        ExportFormat::Pprof => pprof::write_pprof(&view, &selection)?,
        ExportFormat::Lcov => render_lcov_tracefile(job, &view, &selection)?.into_bytes(),
        ExportFormat::LlvmJson => render_llvm_json(&profile, &coverage_file_selection(job))?,
        ExportFormat::Json => json_text(&json::report(&view, &selection, &sources)?)?,
        ExportFormat::Weights => profile.weights()?.to_bytes(),
        ExportFormat::Known => match &job.program {
            Some(program) => build_known_file(program, &profile.known_paths()?, &folders())?,
            None => profile.known_paths()?.to_bytes(),
        },
        ExportFormat::Html => {
            html::page(&view, &sources, &HtmlOptions { measure: selection.measure, ..HtmlOptions::default() }).into_bytes()
        }
        ExportFormat::Chrome | ExportFormat::Addresses => unreachable!("`PROFILE_FORMATS` does not contain them"),
    };
    // JSON and HTML reports say themselves that counts are sampled or inexact.
    if !matches!(job.format, ExportFormat::Json | ExportFormat::Html) {
        warn_of_inexact_counts(&profile);
    }
    write_or_print(job.output.as_deref(), &bytes)?;
    Ok(ExitCode::SUCCESS)
}

fn coverage_file_selection(job: &ExportArguments) -> CoverageFileSelection {
    let (object, include, exclude) = (job.object.clone(), job.include.clone(), job.exclude.clone());
    CoverageFileSelection { object, include, exclude, choices: job.choices.clone() }
}

/// Renders a tracefile of those selected source files that exist.
fn render_lcov_tracefile(job: &ExportArguments, view: &ProfileView, selection: &PathSelection) -> Result<String> {
    let is_all = |pattern: &String| pattern == ALL_SOURCE_FILES_PATTERN;
    let include: Vec<String> = if job.include.iter().any(is_all) { Vec::new() } else { job.include.clone() };
    let files = FilePatterns::new(&include, &job.exclude, job.relative_to.as_deref())?;
    let run = &view.profile.run;
    let found = locate(&source_folders(), &run.directory);
    let name = |path: &str| files.name(path, found(path));
    // The coverage mapping does not say which function a line belongs to.
    let from_mapping = job.function.is_none() && has_coverage_mapping(view.profile);
    ensure!(
        from_mapping || job.object.is_empty(),
        "--object applies only to programs built with --coverage, and cannot be combined with --function. Omit one of the two"
    );
    let text = match from_mapping {
        true => {
            let include = job.include.iter().filter(|pattern| is_all(pattern)).cloned().collect();
            rename_tracefile_sources(
                &render_lcov_of_coverage_mapping(
                    view.profile,
                    &CoverageFileSelection { include, exclude: Vec::new(), ..coverage_file_selection(job) },
                )?,
                &name,
            )
        }
        false => lcov::write_lcov(selection.functions(view)?, &MappedLines::new(), run.suite.as_deref().unwrap_or("trodden"), &name),
    };
    note_missing_files(&files);
    let is_chosen = !include.is_empty() || !job.exclude.is_empty();
    ensure!(
        !text.is_empty() || !is_chosen || !files.missing().is_empty(),
        "--include and --exclude select no source file. Change the patterns"
    );
    Ok(text)
}

/// Renames the source files in a tracefile. Removes files for which `name` returns `None`. Does not rename files that would get the same
/// name: they are versions of one source file in different builds, and their counts must not be mixed.
fn rename_tracefile_sources(tracefile: &str, name: &dyn Fn(&str) -> Option<String>) -> String {
    const TRACEFILE_RECORD_END: &str = "end_of_record\n";
    let records: Vec<(&str, &str, &str, String)> = tracefile
        .split_inclusive(TRACEFILE_RECORD_END)
        .filter_map(|record| {
            let (before, rest) = record.split_once("SF:")?;
            let (path, after) = rest.split_once('\n')?;
            Some((before, path, after, name(path)?))
        })
        .collect();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    records.iter().for_each(|(.., name)| *uses.entry(name).or_default() += 1);
    let named = |path, name| if uses[name] > 1 { path } else { name };
    records.iter().map(|(before, path, after, name)| format!("{before}SF:{}\n{after}", named(*path, name.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefile_records_are_renamed_or_removed() {
        let text = "SF:/a/x.c\nFN:1,SF:f\nDA:1,2\nend_of_record\nTN:t\nSF:/b/y.c\nDA:1,2\nend_of_record\n";
        let name = |path: &str| path.strip_prefix("/a/").map(str::to_owned);
        assert_eq!(rename_tracefile_sources(text, &name), "SF:x.c\nFN:1,SF:f\nDA:1,2\nend_of_record\n");
        assert_eq!(rename_tracefile_sources("", &name), "");
        let two = "SF:/one/x.c\nDA:1,2\nend_of_record\nSF:/two/x.c\nDA:1,3\nend_of_record\n";
        assert_eq!(rename_tracefile_sources(two, &|_| Some("x.c".to_owned())), two);
    }
}
