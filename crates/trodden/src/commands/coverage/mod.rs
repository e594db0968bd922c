//! `trodden coverage`: coverage of the source by LLVM's own tools, from counts that trodden computes of paths.
//!
//! A program built with `--coverage` has clang's (or rustc's) mapping of counters to regions of its sources, but no counters: what these
//! would hold follows from its paths ([`trodden_profile::edges`]). The profile becomes an indexed profile, and `llvm-cov` shows it with
//! the mapping that it finds in the program. Beside its numbers stand those that only paths say.
//!
//! | file | what |
//! |---|---|
//! | `mapping.rs` | programs with a mapping, checked; calls of `llvm-cov` |
//! | `not_executed.rs` | code behind calls that did not return, in the mapping |
//! | `stops.rs`, `true_counts.rs` | where executions ended; how often the regions of a function were executed, given that |
//! | `region_code.rs` | the encoding of regions in the mapping |
//! | `files.rs`, `renamed.rs` | which source files are wanted; folders with two names |
//! | `demangled.rs` | names in exports |
//! | `lines.rs` | executions of lines, as `llvm-cov` has them |
//! | `report.rs`, `diff.rs`, `by_test.rs` | the commands' tables; of a suite, which test adds what |

pub mod by_test;
mod demangled;
mod diff;
pub mod files;
mod lines;
mod mapping;
mod not_executed;
mod region_code;
mod renamed;
mod report;
mod stops;
mod true_counts;

use crate::context::context;
pub use lines::Lines;
pub use mapping::CoverageMapping;
use trodden_driver::other_programs::joined;

use crate::cli::{Coverage, CoverageExport, CoverageFormat, CoverageShow, CoveredFiles};
use crate::notes::{note, reasons, warn};
use crate::output::{print, print_text, write_file};
use anyhow::{Context, Result, bail, ensure};
use renamed::{RenamedFolders, has_other_folder};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use trodden_analysis::changes::plain;
use trodden_driver::toolchain::{LLVM_MAJOR, Tool};
use trodden_profile::Profile;
use trodden_report::View;
use trodden_report::coverage::page;
use trodden_report::view::MappedLines;

/// Executions of the source lines of a profile's programs, of those that have a mapping, by the files' names in debug information.
///
/// # Errors
/// As of [`CoverageMapping::new`].
fn mapped_lines(view: &View) -> Result<MappedLines> {
    if !mapping::is_mapped(view.profile) {
        return Ok(MappedLines::new());
    }
    let all = CoveredFiles { all_files: true, ..CoveredFiles::default() };
    let mapping = CoverageMapping::new(view.profile, &all)?;
    let lines = Lines::from_mapping(&mapping)?.0;
    let in_code: BTreeSet<String> =
        view.profile.images.iter().flat_map(|i| &i.units).flat_map(|u| &u.map.files).map(|f| plain(f)).collect();
    let in_code: BTreeSet<&str> = in_code.iter().map(String::as_str).collect();
    if !lines.keys().any(|file| has_other_folder(&plain(file), &in_code)) {
        return Ok(lines);
    }
    let renamed = RenamedFolders::new(&mapping.export(&[])?, view);
    let mut by_name = MappedLines::new();
    for (file, counts) in lines {
        let of_file = by_name.entry(renamed.in_code(&file, &in_code)).or_default();
        // Units of one file may have several names for it.
        counts.into_iter().for_each(|(line, count)| *of_file.entry(line).or_insert(0u64) += count);
    }
    Ok(by_name)
}

/// A profile made ready for showing, with counts of lines from the mapping for coverage, if its program has one.
pub fn view_of(profile: &Profile) -> View<'_> {
    let mut view = View::from_profile(profile);
    match mapped_lines(&view) {
        Ok(lines) => view.mapped = lines,
        Err(error) => warn(format_args!("counts of lines are those of debug information: {}", reasons(&error))),
    }
    view
}

/// `trodden coverage`
///
/// # Errors
/// There is no such profile, its program has no mapping or is not there as it ran, or LLVM's tools are missing.
pub fn run(job: &Coverage) -> Result<ExitCode> {
    match job {
        Coverage::Report(job) => report::run(job),
        Coverage::Show(job) => show(job),
        Coverage::Export(job) => export(job),
        Coverage::Diff(job) => diff::run(job),
    }
}

fn show(job: &CoverageShow) -> Result<ExitCode> {
    let (profile, mapping) = CoverageMapping::load(&job.covered)?;
    let mut arguments: Vec<OsString> = vec![joined("-Xdemangler=", Tool::Cxxfilt.find(context())?)];
    let mut option = |text: &str| arguments.push(text.into());
    if job.branches {
        option("-show-branches=count");
    }
    if job.mcdc {
        option("-show-mcdc");
    }
    if let Some(function) = &job.function {
        option(&format!("-name-regex={function}"));
    }
    if let Some(equivalence) = &job.path_equivalence {
        ensure!(equivalence.contains(','), "--path-equivalence {equivalence}: give two folders divided by a comma, FROM,TO");
        option(&format!("-path-equivalence={equivalence}"));
    }
    match &job.html {
        None => {
            let shown = mapping.llvm_cov("show", &arguments)?;
            if let Some(function) = job.function.as_ref().filter(|_| shown.is_empty()) {
                bail!("no function has a name that matches `{function}` (--function takes a regular expression of linkage names)");
            }
            print_text(&String::from_utf8_lossy(&shown))?;
        }
        Some(folder) => {
            arguments.extend(["-format=html".into(), "-show-line-counts-or-regions".into()]);
            arguments.push(joined("-output-dir=", folder));
            mapping.llvm_cov("show", &arguments)?;
            let index = folder.join("index.html");
            ensure!(index.is_file(), "llvm-cov-{LLVM_MAJOR} wrote no {}: is the folder writable?", index.display());
            let paths = folder.join(PATHS_PAGE);
            write_file(&paths, paths_page(&profile, &mapping)?.as_bytes())?;
            note(format_args!("the pages are {} (sources) and {} (paths)", index.display(), paths.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The page that `llvm-cov` has not: how much of all paths was taken, and what was never executed together.
const PATHS_PAGE: &str = "paths.html";
/// Untested combinations of one function on it.
const SHOWN_COMBINATIONS: usize = 5;

fn paths_page(profile: &Profile, mapping: &CoverageMapping) -> Result<String> {
    let view = View::from_profile(profile);
    let tables = [report::by_file(mapping, &view)?, report::by_function(mapping, &view, SHOWN_COMBINATIONS)?];
    Ok(page("Coverage, with paths", &tables))
}

fn export(job: &CoverageExport) -> Result<ExitCode> {
    let (_, mapping) = CoverageMapping::load(&job.covered)?;
    let mut arguments: Vec<OsString> = Vec::new();
    arguments.push(match job.format {
        CoverageFormat::Json => "-format=text".into(),
        CoverageFormat::Lcov => "-format=lcov".into(),
    });
    if job.summary_only {
        arguments.push("-summary-only".into());
    }
    let mut bytes = mapping.llvm_cov("export", &arguments)?;
    if job.covered.files.like.is_none() {
        bytes = match job.format {
            CoverageFormat::Lcov => demangled::lcov(&String::from_utf8_lossy(&bytes)).into_bytes(),
            CoverageFormat::Json => {
                let mut export = serde_json::from_slice(&bytes).context("what llvm-cov exports is no JSON")?;
                demangled::json(&mut export);
                serde_json::to_vec(&export).context("cannot write the export")?
            }
        };
    }
    match &job.output {
        Some(file) => write_file(file, &bytes).context("the export")?,
        None => print(&bytes)?,
    }
    Ok(ExitCode::SUCCESS)
}
