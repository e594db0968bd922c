//! `trodden residual`: which paths does the field take that the tests have not? Profiles are filtered by `trodden_analysis`, and written by
//! `trodden_report`.

use crate::cli::{Color, Residual, ResidualFormat};
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
use trodden_report::residual::{ResidualReport as Untested, UntestedInput, UntestedSelection, hot_json, hot_text};
use trodden_report::untested_segments::ShownSegments;
use trodden_report::{SourceCache, View, lcov, sarif, schemes, source_files};
use trodden_unit::{KnownPaths, UnitMap};

/// Exit status when there is something new.
const NEW: u8 = 1;
/// Paths shown on a terminal.
const SHOWN: usize = 10;

/// Shows untested paths.
///
/// # Errors
/// There are no such profiles, or nothing says what is known.
pub fn run(job: &Residual, color: Color) -> Result<ExitCode> {
    match &job.schemes {
        Some(program) => compare_schemes(job, program, color),
        None => report(job, color, None),
    }
}

/// Finds untested paths and segments by both schemes.
fn compare_schemes(job: &Residual, program: &Path, color: Color) -> Result<ExitCode> {
    let (Some(tests), Some(field)) = (&job.tests, &job.field) else { bail!("--schemes needs --tests and --field") };
    let folder = temporary::folder("trodden-schemes-")?;
    let scheme = SchemeJob { program, tests, field, rounds: job.rounds, trodden: context().own_program()?, cpu_time };
    let (compared, profiles) = Schemes::compare(&scheme, folder.path(), &folders())?;
    report(&Residual { profiles, schemes: None, ..job.clone() }, color, Some(&compared))
}

/// The same, with what was compared before.
fn report(job: &Residual, color: Color, schemes: Option<&Schemes>) -> Result<ExitCode> {
    let folders = folders();
    let FieldProfiles { profile, across, sightings, runs, known } =
        FieldProfiles::gather(&job.profiles, &job.known, job.hot.is_some(), &one_run(), &folders)?;
    let maps: Vec<&UnitMap> = profile.images.iter().flat_map(|i| &i.units).map(|u| &*u.map).collect();
    if !known.paths.is_empty() {
        report_known(&known.paths, &maps, "all their paths count as untested");
    }
    let view = View::from_untested(&profile);
    if let Some(top) = job.hot {
        return hot(job, color, &view, &known.paths, top as usize);
    }
    let most = job.top.unwrap_or(if is_text(job) { SHOWN } else { 0 });
    let top = trodden_report::select::limit(most);
    let function = job.function.as_deref();
    let wanted = UntestedSelection { function, top, least_count: job.min_count, old_edges_only: job.known_edges, order: job.by };
    let field = UntestedInput { view: &view, sightings: &sightings, known: &known.paths, runs: &runs };
    let untested = Untested::new(field, &wanted)?;
    let provider = source_files::sources(&source_folders(), &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let segments = UntestedSegmentSelection { known: &job.known, function, least_count: job.min_count };
    let across = across.as_ref().map(|observed| UntestedSegments::new(observed, &segments, &folders)).transpose()?;
    let across = across.as_ref().map(|untested| ShownSegments::new(untested, most));
    let both = ResidualAnswer { paths: &untested, across: across.as_ref(), schemes, is_alone: profile.images.is_empty() };
    output::write_or_print(job.output.as_deref(), &form(job, color, &both, &sources, &profile.run.directory)?)?;
    remarks::remarks(&view, &sources);
    let is_empty = untested.is_empty() && across.is_none_or(|segments| segments.is_empty());
    Ok(if job.fail_if_new && !is_empty { ExitCode::from(NEW) } else { ExitCode::SUCCESS })
}

fn is_text(job: &Residual) -> bool {
    !job.json && job.format == ResidualFormat::Text
}

/// What is reported.
struct ResidualAnswer<'r, 'v, 'a> {
    paths: &'r Untested<'v, 'a>,
    across: Option<&'r ShownSegments<'r>>,
    schemes: Option<&'r Schemes>,
    /// No program counted paths: there are segments only.
    is_alone: bool,
}

fn form(job: &Residual, color: Color, both: &ResidualAnswer, sources: &SourceCache, directory: &str) -> Result<Vec<u8>> {
    let ResidualAnswer { paths: untested, across, schemes, is_alone } = both;
    match if job.json { ResidualFormat::Json } else { job.format } {
        ResidualFormat::Text => {
            let options = output::text_options(color, output::STEPS);
            let mut text = if *is_alone { String::new() } else { untested.text(sources, &options, job.edges) };
            text.insert_str(0, &schemes.map_or(String::new(), schemes::text));
            text += &across.map_or(String::new(), |segments| segments.text(sources, &options));
            Ok(crate::output::printable_text(text.trim_start_matches('\n')).into_bytes())
        }
        ResidualFormat::Json => {
            let mut report = untested.json(sources);
            across.iter().for_each(|segments| segments.add_to_json(&mut report));
            if let Some(compared) = schemes {
                report["schemes"] = schemes::json(compared);
                report["costs"] = schemes::costs_json(&compared.costs);
            }
            json_text(&report)
        }
        ResidualFormat::Sarif => {
            let mut log = sarif::untested(untested, sources);
            across.iter().for_each(|segments| segments.add_to_sarif(&mut log, sources));
            json_text(&log)
        }
        ResidualFormat::Lcov => {
            let (files, found) = (Files::new(&[], &[], None)?, source_files::locate(&source_folders(), directory));
            let text = lcov::executed_only(&untested.functions(), "untested", &|path| files.name(path, found(path)));
            remarks::left_out(&files);
            Ok(text.into_bytes())
        }
    }
}

/// Do hot paths stay hot?
fn hot(job: &Residual, color: Color, view: &View, known: &KnownPaths, top: usize) -> Result<ExitCode> {
    if view.profile.images.iter().flat_map(|i| &i.units).any(|u| u.map.has_times()) {
        bail!(
            "a program built with --residual does not count what is known: for --hot, record the field with a program that counts all \
                paths (or samples them: --sample)"
        );
    }
    let (paths, share) = untested::hot(view.profile, known, top)?;
    if paths.is_empty() {
        bail!("no known path is one of these programs: were the tests recorded with the same build?");
    }
    let bytes = match (job.json || job.format == ResidualFormat::Json, is_text(job)) {
        (true, _) => json_text(&hot_json(view, &paths, share))?,
        (_, true) => hot_text(view, &paths, share, &output::text_options(color, output::STEPS)).into_bytes(),
        _ => bail!("--hot is for text and JSON"),
    };
    output::write_or_print(job.output.as_deref(), &bytes)?;
    Ok(ExitCode::SUCCESS)
}
