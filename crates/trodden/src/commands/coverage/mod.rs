//! `trodden coverage` and `trodden suite order --by lines`. The work is in the crate `trodden-coverage`.

pub mod by_test;
mod diff;
mod report;

use crate::cli::{Coverage, CoverageFileSelection, CoverageReport, CoverageShow, Covered};
use crate::context::context;
use crate::notes::{note, reasons, warn};
use crate::output::{print_text, write_file};
use anyhow::{Result, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use trodden_coverage::{CoverageMapping, CoverageTools, CoveredSources, is_mapped, mapped_lines, select_builds, tables};
use trodden_driver::other_programs::option_with_value;
use trodden_driver::profdata;
use trodden_driver::toolchain::Tool;
use trodden_profile::Profile;
use trodden_report::View;
use trodden_report::coverage::page;
use trodden_report::view::MappedLines;
use trodden_stored::named::LAST;

/// Pattern that selects all files, including those of the standard library.
pub const ALL_FILES: &str = "*";

/// Loads a profile with the mapping of its selected source files.
fn load(covered: &Covered) -> Result<(Profile, CoverageMapping)> {
    let mut profile = trodden_stored::named::load_all_builds(&covered.profile)?;
    select_builds(&mut profile);
    let mapping = mapping_of(&profile, &covered.files)?;
    trodden_coverage::warn_of_second_returns(&profile);
    Ok((profile, mapping))
}

/// Returns the coverage of a profile's selected source files.
///
/// # Errors
/// The program was not built with `--coverage`, or has changed since it ran; no source file is selected; LLVM's tools are missing or fail.
fn mapping_of(profile: &Profile, files: &CoverageFileSelection) -> Result<CoverageMapping> {
    let all_files = files.include.iter().any(|pattern| pattern == ALL_FILES);
    let sources = CoveredSources {
        objects: files.object.clone(),
        include: if all_files { Vec::new() } else { files.include.clone() },
        exclude: files.exclude.clone(),
        all_files,
        llvm_cov_counts: files.choices.imitated_tool.is_some(),
    };
    let counters = profdata::coverage(profile)?;
    let [llvm_cov, llvm_profdata] = [Tool::Cov, Tool::Profdata].map(|tool| profdata::tool_for(context(), tool, profile));
    let (llvm_cov, llvm_profdata, temporary) = (llvm_cov?, llvm_profdata?, env::temp_dir());
    let index = |counters| profdata::indexed_form(context(), &llvm_profdata, counters);
    CoverageMapping::new(profile, counters, &sources, &CoverageTools { llvm_cov: &llvm_cov, index: &index, temporary: &temporary })
}

/// Returns the executions of source lines according to the coverage mapping, keyed by the file names in debug information. The result is
/// empty if the program has no mapping.
fn lines_from_mapping(view: &View) -> Result<MappedLines> {
    if !is_mapped(view.profile) {
        return Ok(MappedLines::new());
    }
    let all = CoverageFileSelection { include: vec![ALL_FILES.into()], ..CoverageFileSelection::default() };
    let mut profile = view.profile.clone();
    select_builds(&mut profile);
    let mapping = mapping_of(&profile, &all)?;
    mapping.note_caveats(false);
    mapped_lines(view, &mapping)
}

/// Prepares a profile for reports, with line counts from the coverage mapping if its program has one.
pub fn view_of(profile: &Profile) -> View<'_> {
    let mut view = View::from_profile(profile);
    match lines_from_mapping(&view) {
        Ok(lines) => view.mapped = lines,
        Err(error) => {
            warn(format_args!("cannot use the coverage mapping, so line counts are taken from debug information: {}", reasons(&error)))
        }
    }
    view
}

/// Prints the coverage of the last run, by file. `all_files` includes files outside the project.
pub fn report_last(all_files: bool) -> Result<ExitCode> {
    let include = all_files.then(|| ALL_FILES.to_owned()).into_iter().collect();
    let files = CoverageFileSelection { include, ..CoverageFileSelection::default() };
    report::run(&CoverageReport {
        covered: Covered { profile: LAST.to_owned(), files },
        functions: false,
        combinations: 0,
        changed_since: None,
        baseline: None,
        fail_under: Vec::new(),
        json: false,
    })
}

/// Runs `trodden coverage`.
pub fn run(job: &Coverage) -> Result<ExitCode> {
    match job {
        Coverage::Report(job) => report::run(job),
        Coverage::Show(job) => show(job),
    }
}

fn show(job: &CoverageShow) -> Result<ExitCode> {
    let (profile, mapping) = load(&job.covered)?;
    let mut arguments: Vec<OsString> = vec![option_with_value("-Xdemangler=", profdata::tool_for(context(), Tool::Cxxfilt, &profile)?)];
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
                bail!("no function matches `{function}`. Pass a regular expression for linkage names to --function");
            }
            print_text(&mapping.mark_output(&String::from_utf8_lossy(&shown))?)?;
            mapping.note_caveats(true);
        }
        Some(folder) => {
            arguments.extend(["-format=html".into(), "-show-line-counts-or-regions".into()]);
            arguments.push(option_with_value("-output-dir=", folder));
            mapping.llvm_cov("show", &arguments)?;
            let index = folder.join("index.html");
            ensure!(index.is_file(), "llvm-cov did not write {}. Check that the folder is writable", index.display());
            mapping.mark_pages(folder)?;
            let paths = folder.join(PATHS_PAGE);
            write_file(&paths, paths_page(&profile, &mapping)?.as_bytes())?;
            note(format_args!("wrote pages {} (sources) and {} (paths)", index.display(), paths.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Page that `llvm-cov` does not write: path coverage, and lines that were never executed together.
const PATHS_PAGE: &str = "paths.html";
/// Maximum number of untested combinations per function on that page.
const MAX_COMBINATIONS: usize = 5;

fn paths_page(profile: &Profile, mapping: &CoverageMapping) -> Result<String> {
    let view = View::from_profile(profile);
    let tables = [tables::by_file(mapping, &view)?, tables::by_function(mapping, &view, MAX_COMBINATIONS)?];
    Ok(page("Coverage, with paths", &tables))
}

/// Returns JSON in the schema of `llvm-cov export`.
pub fn llvm_json(profile: &Profile, files: &CoverageFileSelection) -> Result<Vec<u8>> {
    let mapping = mapping_of(profile, files)?;
    let bytes = mapping.json(mapping.llvm_cov("export", &["-format=text".into()])?)?;
    mapping.note_caveats(true);
    Ok(bytes)
}

/// Returns a tracefile of the mapping's lines and branches.
pub fn mapped_tracefile(profile: &Profile, files: &CoverageFileSelection) -> Result<String> {
    let mapping = mapping_of(profile, files)?;
    let bytes = mapping.lcov(mapping.llvm_cov("export", &["-format=lcov".into()])?);
    mapping.note_caveats(false);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
