//! `trodden instrument PROG -o OUT`: another variant of a program, made from its bitcode and its link recipe, without its sources. See
//! [`trodden_driver::variant`].

mod interesting;
mod watch;

use crate::cli::{Instrument, OnUntested, word};
use crate::context::context;
use crate::notes::{note, warn};
use crate::surroundings::folders;
use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_analysis::residual::{FIELD_FOLDER, report_known};
use trodden_analysis::segments;
use trodden_driver::experiment;
use trodden_driver::variant::{self, Defaults, WRITES_NOTHING};
use trodden_flow::NumberingScheme;
use trodden_profile::RunStore;
use trodden_profile::private;
use trodden_report::words::plural;
use trodden_unit::experiment::{ExperimentScheme, InputKind, PluginRequest, SettingsFile, exclusions};
use trodden_unit::{Image, Observation, Settings, UnitMap};

/// By how many per cent the code of a unit may grow so that callees need not read their contexts.
const GROWTH: u32 = 50;

/// Makes the variant.
///
/// # Errors
/// The program is not instrumented, its recipe or bitcode is missing, or a tool fails.
pub fn run(job: &Instrument) -> Result<ExitCode> {
    let (program, output) = (&job.program, &job.output);
    ensure!(
        job.action.is_none() || job.watch.is_some() || job.parameters.residual.is_some(),
        "--action says what happens at a watched or untested path: give --watch EXPRESSION or --residual PROFILE, too"
    );
    let request = request(job)?;
    let defaults = defaults(job);
    variant::check_counters(program, request.experiment.observation())?;
    let Some(made) = variant::make(context(), program, output, &request, &defaults)? else {
        if matches!(request.experiment.observation(), Observation::TraceSleds(_)) {
            note(format_args!("{} has room for a witness in each block, and counts nothing", output.display()));
            return Ok(ExitCode::SUCCESS);
        }
        bail!("{} has no instrumented unit", output.display());
    };
    report(&made);
    if let Some(set) = request.experiment.segments() {
        segments::check_variant(&made, set, program, output, &folders().inputs()?)?;
    }
    if let Some(known) = request.experiment.known_set() {
        let known = experiment::paths_of(context(), InputKind::Known, known)?;
        let maps: Vec<UnitMap> = made.frames.iter().filter_map(|f| f.map().ok()).collect();
        report_known(&known, &maps.iter().collect::<Vec<_>>(), "all their paths are counted");
    }
    note(format_args!(
        "{}: image {}, {}, {}",
        output.display(),
        made.identity,
        plural(made.units.len() as u128, "unit", "units"),
        scheme(&made)
    ));
    match &defaults.output {
        Some(pattern) => {
            note(format_args!("it writes to {pattern}, unless TRODDEN_OUTPUT names another file; `trodden untested` reads that"))
        }
        None if job.parameters.residual.is_some() => note(format_args!("there is no run store here: {WRITES_NOTHING}")),
        None if job.watch.is_some() => note(WRITES_NOTHING),
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked for. It is checked before anything is read.
fn request(job: &Instrument) -> Result<PluginRequest> {
    let place = || Some(SettingsFile::File(PathBuf::new()));
    let mut settings = Settings { time_limit_s: job.choices.time_limit, ..job.parameters.settings() };
    settings.interesting = if job.interesting.is_empty() { None } else { place() };
    settings.watched = job.watch.as_ref().and_then(|_| place());
    settings.segments = job.segments.as_ref().or(job.tested_segments.as_ref()).and_then(|_| place());
    exclusions::check(&settings)?;
    if !job.interesting.is_empty() {
        let paths = interesting::paths(&job.interesting, &job.program)?;
        let interesting: usize = paths.functions().map(|(_, _, f)| f.known.len()).sum();
        let (paths_said, of) = (plural(interesting as u128, "path", "paths"), plural(paths.len() as u128, "function", "functions"));
        note(format_args!("{paths_said} of {of} {} interesting", if interesting == 1 { "is" } else { "are" }));
        settings.interesting = Some(experiment::stored(context(), &paths)?);
    }
    if let Some(expression) = &job.watch {
        settings.watched = Some(experiment::stored(context(), &watch::others(expression, &job.program)?)?);
    }
    let set = match (&job.segments, &job.tested_segments) {
        (Some(wanted), _) => Some(segments::asked(job.depth as usize, &job.only, wanted, &folders())?),
        (None, Some(tests)) => Some(segments::tested(tests, job.depth as usize, &folders())?),
        (None, None) => None,
    };
    if let Some(set) = set.map(|set| set.with_growth(job.choices.growth.unwrap_or(GROWTH))) {
        let functions = plural(set.functions().len() as u128, "function", "functions");
        let is_selective = settings.scheme == Some(ExperimentScheme::Interesting(NumberingScheme::Pspp));
        ensure!(
            !(is_selective && set.counts_every()),
            "--scheme pspp numbers segments that are chosen, and this set has everything behind its calls: take known-table or ball-larus"
        );
        note(format_args!("{} through {functions}", plural(set.len() as u128, "segment", "segments")));
        settings.segments = Some(SettingsFile::Stored(context().inputs()?.put(&set.to_bytes())?));
    }
    experiment::resolve(context(), settings)
}

/// What the variant does where the environment says nothing: in a folder with a run store, its counts go there.
fn defaults(job: &Instrument) -> Defaults {
    let store = job.parameters.residual.as_ref().and_then(|_| RunStore::find(Path::new(".")).ok());
    let output = store.and_then(|store| {
        let folder = store.folder().join(FIELD_FOLDER);
        private::create_folder(&folder).ok()?;
        Some(format!("{}/%m.raw", fs::canonicalize(folder).ok()?.to_str()?.replace('%', "%%")))
    });
    let on_match = job.watch.as_ref().map(|_| OnUntested::Report);
    Defaults { output, on_untested: job.action.or(on_match).map(word), watched: job.watch.clone() }
}

/// Names the functions of which other paths are counted than the interesting ones.
fn report(image: &Image) {
    for map in image.frames.iter().filter_map(|f| f.map().ok()) {
        for function in &map.instead {
            warn(format_args!("{}: all paths of `{}` are counted: {}", map.source, function.name, function.reason));
        }
    }
}

/// How the units of an image are counted.
fn scheme(image: &Image) -> String {
    let mut schemes: Vec<String> = image.frames.iter().filter_map(|f| f.map().ok()).map(|m| m.experiment.to_string()).collect();
    schemes.sort();
    schemes.dedup();
    schemes.join(" or ")
}
