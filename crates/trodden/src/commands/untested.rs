//! `trodden untested`: which paths does the field take that the tests have not? Profiles are filtered by `trodden_analysis`, and written by
//! `trodden_report`.

use crate::cli::{Color, Untested, UntestedFormat};
use crate::commands::remarks;
use crate::context::context;
use crate::output::{self, json_text};
use crate::surroundings::folders;
use crate::surroundings::source_folders;
use crate::temporary;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use trodden_analysis::residual::{FieldProfiles, SchemeJob, Schemes, report_known};
use trodden_analysis::segments::{UntestedSegmentSelection, UntestedSegments};
use trodden_analysis::untested;
use trodden_coverage::Files;
use trodden_recording::{cpu_time, one_run};
use trodden_report::residual::{ResidualReport, UntestedInput, UntestedSelection, hot_json, hot_text};
use trodden_report::untested_segments::ShownSegments;
use trodden_report::{SourceCache, View, lcov, sarif, schemes, source_files, targets};
use trodden_unit::UnitMap;

/// Exit status when there is something new.
const NEW: u8 = 1;
/// Paths shown on a terminal.
const SHOWN: usize = 10;

/// Shows untested paths.
///
/// # Errors
/// There are no such profiles, or nothing says what is known.
pub fn run(job: &Untested, color: Color) -> Result<ExitCode> {
    report(job, color, None)
}

/// Programs and commands for a comparison of the schemes that find untested paths (`trodden-lab schemes`).
#[derive(Debug)]
pub struct SchemeRequest<'a> {
    /// The program, with its bitcode kept.
    pub program: &'a Path,
    /// A shell command that runs the tests; `{}` stands for the program.
    pub tests: &'a str,
    /// A shell command that runs the program as the field does.
    pub field: &'a str,
    /// How often the field's command runs with each build, in order to measure its processor time.
    pub rounds: u32,
}

/// Finds untested paths and segments by both schemes, and compares what they find.
///
/// # Errors
/// A build or a command fails, or `{}` is missing in a command.
pub fn compare_schemes(request: &SchemeRequest, form: &Untested, color: Color) -> Result<ExitCode> {
    let folder = temporary::folder("trodden-schemes-")?;
    let SchemeRequest { program, tests, field, rounds } = *request;
    // The laboratory calls this: its own program is not the one that instruments.
    let trodden = context().own_folder()?.join("trodden");
    let scheme = SchemeJob { program, tests, field, rounds, trodden: &trodden, cpu_time };
    let (compared, profiles) = Schemes::compare(&scheme, folder.path(), &folders())?;
    report(&Untested { profiles, ..form.clone() }, color, Some(&compared))
}

/// Reports untested paths, and what was compared before.
fn report(job: &Untested, color: Color, schemes: Option<&Schemes>) -> Result<ExitCode> {
    let folders = folders();
    let FieldProfiles { profile, across, sightings, runs, known } =
        FieldProfiles::gather(&job.profiles, &job.known, false, &one_run(), &folders)?;
    let maps: Vec<&UnitMap> = profile.images.iter().flat_map(|i| &i.units).map(|u| &*u.map).collect();
    if !known.paths.is_empty() {
        report_known(&known.paths, &maps, "all their paths count as untested");
    }
    let view = View::from_untested(&profile);
    let most = job.top.unwrap_or(if is_text(job) { SHOWN } else { 0 });
    let top = trodden_report::select::limit(most);
    let function = job.function.as_deref();
    let wanted = UntestedSelection { function, top, old_edges_only: job.known_edges, order: job.by };
    let field = UntestedInput { view: &view, sightings: &sightings, known: &known.paths, runs: &runs };
    let untested = ResidualReport::new(field, &wanted)?;
    let provider = source_files::sources(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let segments = UntestedSegmentSelection { known: &job.known, function };
    let across = across.as_ref().map(|observed| UntestedSegments::new(observed, &segments, &folders)).transpose()?;
    let across = across.as_ref().map(|untested| ShownSegments::new(untested, most));
    let both = ResidualAnswer { paths: &untested, across: across.as_ref(), schemes, is_alone: profile.images.is_empty() };
    output::write_or_print(job.output.as_deref(), &form(job, color, &both, &sources, &profile.run.directory)?)?;
    remarks::remarks(&view, &sources);
    let is_empty = untested.is_empty() && across.is_none_or(|segments| segments.is_empty());
    Ok(if job.fail && !is_empty { ExitCode::from(NEW) } else { ExitCode::SUCCESS })
}

fn is_text(job: &Untested) -> bool {
    !job.json && job.format == UntestedFormat::Text
}

/// What is reported.
struct ResidualAnswer<'r, 'v, 'a> {
    paths: &'r ResidualReport<'v, 'a>,
    across: Option<&'r ShownSegments<'r>>,
    schemes: Option<&'r Schemes>,
    /// No program counted paths: there are segments only.
    is_alone: bool,
}

fn form(job: &Untested, color: Color, both: &ResidualAnswer, sources: &SourceCache, directory: &str) -> Result<Vec<u8>> {
    let ResidualAnswer { paths: untested, across, schemes, is_alone } = both;
    match if job.json { UntestedFormat::Json } else { job.format } {
        UntestedFormat::Text => {
            let options = output::text_options(color, output::STEPS);
            let mut text = if *is_alone { String::new() } else { untested.text(sources, &options, job.edges) };
            text.insert_str(0, &schemes.map_or(String::new(), schemes::text));
            text += &across.map_or(String::new(), |segments| segments.text(sources, &options));
            Ok(crate::output::printable_text(text.trim_start_matches('\n')).into_bytes())
        }
        UntestedFormat::Json => {
            let mut report = untested.json(sources);
            across.iter().for_each(|segments| segments.add_to_json(&mut report));
            if let Some(compared) = schemes {
                report["schemes"] = schemes::json(compared);
                report["costs"] = schemes::costs_json(&compared.costs);
            }
            json_text(&report)
        }
        UntestedFormat::Sarif => {
            let mut log = sarif::untested(untested, sources);
            across.iter().for_each(|segments| segments.add_to_sarif(&mut log, sources));
            json_text(&log)
        }
        UntestedFormat::Targets => json_text(&targets::targets(untested)),
        UntestedFormat::Lcov => {
            let (files, found) = (Files::new(&[], &[], None)?, source_files::locate(&source_folders(), directory));
            let text = lcov::executed_only(&untested.functions(), "untested", &|path| files.name(path, found(path)));
            remarks::left_out(&files);
            Ok(text.into_bytes())
        }
    }
}

/// Shows what became of the paths that tests execute most, in a field profile that counts all paths (`trodden-lab hot-paths`).
///
/// # Errors
/// No program counts all paths, or no known path is one of these programs.
pub fn hot(profiles: &[String], known: &[String], top: usize, as_json: bool, color: Color) -> Result<ExitCode> {
    let FieldProfiles { profile, known, .. } = FieldProfiles::gather(profiles, known, true, &one_run(), &folders())?;
    let view = View::from_untested(&profile);
    if profile.images.iter().flat_map(|i| &i.units).any(|u| u.map.has_times()) {
        bail!("a program built with --residual does not count known paths: record the field with a program that counts or samples all");
    }
    let (paths, share) = untested::hot(&profile, &known.paths, top)?;
    if paths.is_empty() {
        bail!("no known path is one of these programs: record the tests with the same build");
    }
    let bytes = match as_json {
        true => json_text(&hot_json(&view, &paths, share))?,
        false => hot_text(&view, &paths, share, &output::text_options(color, output::STEPS)).into_bytes(),
    };
    output::write_or_print(None, &bytes)?;
    Ok(ExitCode::SUCCESS)
}
