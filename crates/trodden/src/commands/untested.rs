//! `trodden untested`: shows paths that the program executed in the field (in production) but in no test. `trodden_analysis` finds them,
//! and `trodden_report` formats them.

use crate::cli::{Color, UntestedArguments};
use crate::commands::remarks;
use crate::context::driver_context;
use crate::output::{self, json_text};
use crate::rust_sources;
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use crate::temporary;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use trodden_analysis::residual::{FieldProfiles, SchemeComparison, SchemeResults, warn_if_tests_differ};
use trodden_analysis::segments::{UntestedSegmentSelection, UntestedSegments};
use trodden_analysis::untested;
use trodden_coverage::FilePatterns;
use trodden_recording::{cpu_time, new_run_metadata};
use trodden_report::residual::{ResidualReport, UntestedReportInput, UntestedSelection, hot_paths_json, render_hot_paths};
use trodden_report::untested_segments::ShownSegments;
use trodden_report::{ProfileView, SourceCache, lcov, sarif, schemes, source_files};
use trodden_unit::UnitMap;

/// Exit status if there is an untested path or segment and `--fail` is given.
const UNTESTED_FOUND_EXIT_STATUS: u8 = 1;
/// Default number of paths in a text report.
const DEFAULT_MAX_PATHS: usize = 10;

pub fn run(job: &UntestedArguments, color: Color) -> Result<ExitCode> {
    report(job, color, None)
}

/// Arguments of [`compare_schemes`].
#[derive(Debug)]
pub struct SchemeComparisonRequest<'a> {
    /// The program. Its build must have kept the bitcode.
    pub program: &'a Path,
    /// Shell command that runs the tests. `{}` stands for the program.
    pub tests: &'a str,
    /// Shell command that runs the program as users do. `{}` stands for the program.
    pub field: &'a str,
    /// Number of times that `field` is run with each build, to measure processor time.
    pub rounds: u32,
}

/// Finds untested paths and segments across calls with both schemes of Vaswani's thesis (section 3.5.2), and compares the results. Fails if
/// a build or a command fails, or if `{}` is missing in a command.
pub fn compare_schemes(request: &SchemeComparisonRequest, form: &UntestedArguments, color: Color) -> Result<ExitCode> {
    let folder = temporary::create_temporary_folder("trodden-schemes-")?;
    let SchemeComparisonRequest { program, tests, field, rounds } = *request;
    // This code runs in `trodden-lab`, which cannot instrument programs, so it calls `trodden`.
    let trodden = driver_context().executable_folder()?.join("trodden");
    let scheme = SchemeComparison { program, tests, field, rounds, trodden: &trodden, cpu_time };
    let (compared, profiles) = SchemeResults::compare(&scheme, folder.path(), &folders())?;
    report(&UntestedArguments { profiles, ..form.clone() }, color, Some(&compared))
}

/// Reports untested paths, followed by the comparison of schemes if `schemes` is given.
fn report(job: &UntestedArguments, color: Color, schemes: Option<&SchemeResults>) -> Result<ExitCode> {
    let folders = folders();
    let FieldProfiles { profile, across, sightings, runs, known } =
        FieldProfiles::gather(&job.profiles, &job.known, false, &new_run_metadata(), &folders)?;
    let maps: Vec<&UnitMap> = profile.images.iter().flat_map(|i| &i.units).map(|u| &*u.map).collect();
    if !known.paths.is_empty() {
        warn_if_tests_differ(&known.paths, &maps, "all paths of these functions count as untested");
    }
    let view = ProfileView::from_untested(&profile);
    let is_text = !job.json && job.sarif.is_none() && job.lcov.is_none();
    let max_shown = job.top.unwrap_or(if is_text { DEFAULT_MAX_PATHS } else { 0 });
    let top = trodden_report::select::limit(max_shown);
    let function = job.function.as_deref();
    let selection = UntestedSelection { function, top, order: job.by };
    let field = UntestedReportInput { view: &view, sightings: &sightings, known: &known.paths, runs: &runs };
    let untested = ResidualReport::new(field, &selection)?;
    let provider = rust_sources::read_project_or_toolchain_source(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let segments = UntestedSegmentSelection { known: &job.known, function };
    let across = across.as_ref().map(|observed| UntestedSegments::new(observed, &segments, &folders)).transpose()?;
    let across = across.as_ref().map(|untested| ShownSegments::new(untested, max_shown));
    let parts = UntestedReportParts { paths: &untested, across: across.as_ref(), schemes, has_segments_only: profile.images.is_empty() };
    write_report(job, color, &parts, &sources, &profile.run.directory)?;
    remarks::warn_of_missing_sources(&view, &sources);
    let is_empty = untested.is_empty() && across.is_none_or(|segments| segments.is_empty());
    Ok(if job.fail && !is_empty { ExitCode::from(UNTESTED_FOUND_EXIT_STATUS) } else { ExitCode::SUCCESS })
}

struct UntestedReportParts<'r, 'v, 'a> {
    paths: &'r ResidualReport<'v, 'a>,
    across: Option<&'r ShownSegments<'r>>,
    schemes: Option<&'r SchemeResults>,
    /// True if the profiles contain no path counts, only counts of segments across calls.
    has_segments_only: bool,
}

fn write_report(job: &UntestedArguments, color: Color, parts: &UntestedReportParts, sources: &SourceCache, directory: &str) -> Result<()> {
    let UntestedReportParts { paths: untested, across, schemes, has_segments_only } = parts;
    if let Some(file) = &job.sarif {
        let mut log = sarif::untested_paths_sarif(untested, sources);
        across.iter().for_each(|segments| segments.add_to_sarif(&mut log, sources));
        return output::write_report(file, &json_text(&log)?, "the untested paths are");
    }
    if let Some(file) = &job.lcov {
        let (files, found) = (FilePatterns::new(&[], &[], None)?, source_files::locate(&source_folders(), directory));
        let text = lcov::write_executed_lines(&untested.functions(), "untested", &|path| files.name(path, found(path)));
        remarks::note_missing_files(&files);
        return output::write_report(file, text.as_bytes(), "the lines on untested paths are");
    }
    if job.json {
        let mut report = untested.json(sources);
        across.iter().for_each(|segments| segments.add_to_json(&mut report));
        if let Some(compared) = schemes {
            report["schemes"] = schemes::json(compared);
            report["costs"] = schemes::costs_json(&compared.costs);
        }
        return output::print(&json_text(&report)?);
    }
    let options = output::text_options(color, output::DEFAULT_STEPS);
    let mut text = if *has_segments_only { String::new() } else { untested.text(sources, &options) };
    text.insert_str(0, &schemes.map_or(String::new(), schemes::text));
    text += &across.map_or(String::new(), |segments| segments.text(sources, &options));
    output::print_text(text.trim_start_matches('\n'))
}

/// Shows how often users execute the paths that tests execute most (`trodden-lab hot-paths`). The field profile must be from a program that
/// counts all paths. Fails if the program counts only untested paths, or if no tested path belongs to a program in the profile.
pub fn show_field_counts_of_hot_paths(profiles: &[String], known: &[String], top: usize, as_json: bool, color: Color) -> Result<ExitCode> {
    let FieldProfiles { profile, known, .. } = FieldProfiles::gather(profiles, known, true, &new_run_metadata(), &folders())?;
    let view = ProfileView::from_untested(&profile);
    if profile.images.iter().flat_map(|i| &i.units).any(|u| u.map.has_times()) {
        bail!(
            "the profile from production has no counts of tested paths, because the program was built with --residual. Record it again \
             with a build that counts or samples all paths"
        );
    }
    let (paths, share) = untested::hot_paths(&profile, &known.paths, top)?;
    if paths.is_empty() {
        bail!("the tests took no path of these programs. Record the tests with the same build");
    }
    let bytes = match as_json {
        true => json_text(&hot_paths_json(&view, &paths, share))?,
        false => render_hot_paths(&view, &paths, share, &output::text_options(color, output::DEFAULT_STEPS)).into_bytes(),
    };
    output::write_or_print(None, &bytes)?;
    Ok(ExitCode::SUCCESS)
}
