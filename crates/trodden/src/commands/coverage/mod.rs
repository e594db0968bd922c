//! `trodden coverage` and `trodden suite order --by lines`. The crate `trodden-coverage` does the work.

pub mod by_test;
mod diff;
mod report;

use crate::cli::{CoverageCommand, CoverageFileSelection, CoverageInputArguments, CoverageReportArguments, CoverageShowArguments};
use crate::context::driver_context;
use crate::notes::{note, reasons, warn};
use crate::output::{print_text, write_file};
use anyhow::{Result, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use trodden_coverage::{CoverageMapping, CoverageTools, CoveredSources, has_coverage_mapping, mapped_lines, select_builds, tables};
use trodden_driver::other_programs::option_with_value;
use trodden_driver::profdata;
use trodden_driver::toolchain::LlvmTool;
use trodden_profile::Profile;
use trodden_report::ProfileView;
use trodden_report::coverage::page;
use trodden_report::view::MappedLines;
use trodden_stored::named::LAST_RUN_NAME;

/// Pattern that selects all source files, even those of the standard library.
pub const ALL_SOURCE_FILES_PATTERN: &str = "*";

fn load_profile_and_mapping(covered: &CoverageInputArguments) -> Result<(Profile, CoverageMapping)> {
    let mut profile = trodden_stored::named::load_all_builds(&covered.profile)?;
    select_builds(&mut profile);
    let mapping = load_coverage_mapping(&profile, &covered.files)?;
    trodden_coverage::warn_of_second_returns(&profile);
    Ok((profile, mapping))
}

/// Returns the coverage of the source files that `files` selects. Fails if the program was not built with `--coverage` or has changed since
/// it ran, no source file is selected, or LLVM's tools are missing or fail.
fn load_coverage_mapping(profile: &Profile, files: &CoverageFileSelection) -> Result<CoverageMapping> {
    let all_files = files.include.iter().any(|pattern| pattern == ALL_SOURCE_FILES_PATTERN);
    let sources = CoveredSources {
        objects: files.object.clone(),
        include: if all_files { Vec::new() } else { files.include.clone() },
        exclude: files.exclude.clone(),
        all_files,
        llvm_cov_counts: files.choices.imitated_tool.is_some(),
    };
    let counters = profdata::coverage_counts(profile)?;
    let [llvm_cov, llvm_profdata] =
        [LlvmTool::Cov, LlvmTool::Profdata].map(|tool| profdata::find_tool_for(driver_context(), tool, profile));
    let (llvm_cov, llvm_profdata, temporary) = (llvm_cov?, llvm_profdata?, env::temp_dir());
    let index = |counters| profdata::encode_indexed_profile(driver_context(), &llvm_profdata, counters);
    CoverageMapping::new(profile, counters, &sources, &CoverageTools { llvm_cov: &llvm_cov, index: &index, temporary: &temporary })
}

/// Returns how often source lines were executed according to the coverage mapping. The file names are those in debug information. Empty if
/// the program has no coverage mapping.
fn count_lines_by_coverage_mapping(view: &ProfileView) -> Result<MappedLines> {
    if !has_coverage_mapping(view.profile) {
        return Ok(MappedLines::new());
    }
    let all = CoverageFileSelection { include: vec![ALL_SOURCE_FILES_PATTERN.into()], ..CoverageFileSelection::default() };
    let mut profile = view.profile.clone();
    select_builds(&mut profile);
    let mapping = load_coverage_mapping(&profile, &all)?;
    mapping.log_inexact_functions(false);
    mapped_lines(view, &mapping)
}

/// Prepares a profile for reports. If the program has a coverage mapping, line counts are taken from the mapping.
pub fn create_view(profile: &Profile) -> ProfileView<'_> {
    let mut view = ProfileView::from_profile(profile);
    match count_lines_by_coverage_mapping(&view) {
        Ok(lines) => view.mapped = lines,
        Err(error) => {
            warn(format_args!("cannot use the coverage mapping, so line counts are taken from debug information: {}", reasons(&error)))
        }
    }
    view
}

/// Prints the coverage of each file in the last run. With `all_files`, includes files outside the project.
pub fn report_coverage_of_last_run(all_files: bool) -> Result<ExitCode> {
    let include = all_files.then(|| ALL_SOURCE_FILES_PATTERN.to_owned()).into_iter().collect();
    let files = CoverageFileSelection { include, ..CoverageFileSelection::default() };
    report::run(&CoverageReportArguments {
        covered: CoverageInputArguments { profile: LAST_RUN_NAME.to_owned(), files },
        functions: false,
        combinations: 0,
        changed_since: None,
        baseline: None,
        fail_under: Vec::new(),
        json: false,
    })
}

pub fn run(job: &CoverageCommand) -> Result<ExitCode> {
    match job {
        CoverageCommand::Report(job) => report::run(job),
        CoverageCommand::Show(job) => show(job),
    }
}

fn show(job: &CoverageShowArguments) -> Result<ExitCode> {
    let (profile, mapping) = load_profile_and_mapping(&job.covered)?;
    let mut arguments: Vec<OsString> =
        vec![option_with_value("-Xdemangler=", profdata::find_tool_for(driver_context(), LlvmTool::Cxxfilt, &profile)?)];
    let mut option = |text: &str| arguments.push(text.into());
    if job.conditions {
        ["-show-branches=count", "-show-mcdc"].into_iter().for_each(&mut option);
    }
    if let Some(function) = &job.function {
        option(&format!("-name-regex={function}"));
    }
    if let Some(equivalence) = &job.covered.files.choices.path_equivalence {
        ensure!(equivalence.contains(','), "invalid --path-equivalence {equivalence}: expected two folders. Write FROM,TO");
        option(&format!("-path-equivalence={equivalence}"));
    }
    match &job.html {
        None => {
            let shown = mapping.llvm_cov("show", &arguments)?;
            if let Some(function) = job.function.as_ref().filter(|_| shown.is_empty()) {
                bail!("no function matches `{function}`. Pass a regular expression for linkage (mangled) names to --function");
            }
            print_text(&mapping.mark_output(&String::from_utf8_lossy(&shown))?)?;
            mapping.log_inexact_functions(true);
        }
        Some(folder) => {
            arguments.extend(["-format=html".into(), "-show-line-counts-or-regions".into()]);
            arguments.push(option_with_value("-output-dir=", folder));
            mapping.llvm_cov("show", &arguments)?;
            let index = folder.join("index.html");
            ensure!(index.is_file(), "llvm-cov did not write {}. Check that the folder is writable", index.display());
            mapping.mark_pages(folder)?;
            let paths = folder.join(PATHS_PAGE_FILE);
            write_file(&paths, render_paths_page(&profile, &mapping)?.as_bytes())?;
            note(format_args!("wrote pages {} (sources) and {} (paths)", index.display(), paths.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// File name of the page that trodden adds to the pages of `llvm-cov`. It shows path coverage, and lines that were never executed in the
/// same path.
const PATHS_PAGE_FILE: &str = "paths.html";
/// Maximum number of untested combinations per function on this page.
const MAX_COMBINATIONS_PER_FUNCTION: usize = 5;

fn render_paths_page(profile: &Profile, mapping: &CoverageMapping) -> Result<String> {
    let view = ProfileView::from_profile(profile);
    let tables = [tables::coverage_by_file(mapping, &view)?, tables::coverage_by_function(mapping, &view, MAX_COMBINATIONS_PER_FUNCTION)?];
    Ok(page("Coverage, with paths", &tables))
}

/// Renders coverage as JSON in the schema of `llvm-cov export`.
pub fn render_llvm_json(profile: &Profile, files: &CoverageFileSelection) -> Result<Vec<u8>> {
    let mapping = load_coverage_mapping(profile, files)?;
    let bytes = mapping.json(mapping.llvm_cov("export", &["-format=text".into()])?)?;
    mapping.log_inexact_functions(true);
    Ok(bytes)
}

pub fn render_lcov_of_coverage_mapping(profile: &Profile, files: &CoverageFileSelection) -> Result<String> {
    let mapping = load_coverage_mapping(profile, files)?;
    let bytes = mapping.lcov(mapping.llvm_cov("export", &["-format=lcov".into()])?);
    mapping.log_inexact_functions(false);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
