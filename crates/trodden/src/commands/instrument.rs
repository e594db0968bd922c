//! `trodden instrument PROGRAM -o NEW`: makes a variant of a program from its bitcode and link recipe, without its sources; see
//! [`trodden_driver::variant`].

mod interesting;
mod watch;

use crate::cli::{InstrumentArguments, PathAction, word};
use crate::context::driver_context;
use crate::notes::{note, warn};
use crate::surroundings::folders;
use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_analysis::residual::{FIELD_FOLDER, warn_if_tests_differ};
use trodden_analysis::segments;
use trodden_driver::experiment;
use trodden_driver::variant::{self, OUTPUT_HINT, VariantDefaults};
use trodden_flow::NumberingScheme;
use trodden_profile::RunStore;
use trodden_profile::private;
use trodden_report::words::plural;
use trodden_unit::experiment::{ExperimentScheme, InputPurpose, PluginRequest, SettingsFile, exclusions};
use trodden_unit::{InstrumentedImage, Observation, Settings, UnitMap};

/// Default of `--growth`: how much a unit's code may grow, in percent, by inlining callees or by cloning them for certain callers.
const DEFAULT_MAX_GROWTH_PERCENT: u32 = 50;

pub fn run(job: &InstrumentArguments) -> Result<ExitCode> {
    let (program, output) = (&job.program, &job.output);
    ensure!(
        job.action.is_none() || job.watch.is_some() || job.parameters.residual.is_some(),
        "--action needs paths that trigger the action. Add --watch EXPRESSION or --residual PROFILE"
    );
    let request = build_plugin_request(job)?;
    let defaults = choose_variant_defaults(job);
    variant::check_counters(program, request.experiment.observation())?;
    let Some(made) = variant::create(driver_context(), program, output, &request, &defaults)? else {
        if matches!(request.experiment.observation(), Observation::TraceSleds(_)) {
            note(format_args!("{} counts nothing, but has space for a tracing jump (witness sled) in each basic block", output.display()));
            return Ok(ExitCode::SUCCESS);
        }
        bail!("{} has no part that was compiled by trodden", output.display());
    };
    warn_of_full_counting(&made);
    if let Some(set) = request.experiment.segments() {
        segments::check_variant(&made, set, program, output, &folders().inputs()?)?;
    }
    if let Some(known) = request.experiment.tested_paths() {
        let known = experiment::load_stored_paths(driver_context(), InputPurpose::Known, known)?;
        let maps: Vec<UnitMap> = made.frames.iter().filter_map(|f| f.map().ok()).collect();
        warn_if_tests_differ(&known, &maps.iter().collect::<Vec<_>>(), "all paths of these functions are counted");
    }
    note(format_args!(
        "{}: image {}, {}, {}",
        output.display(),
        made.identity,
        plural(made.units.len() as u128, "unit", "units"),
        describe_experiments(&made)
    ));
    match &defaults.output {
        Some(pattern) => note(format_args!(
            "unless TRODDEN_OUTPUT is set, the variant writes its counts to {pattern}, where `trodden untested` finds them"
        )),
        None if job.parameters.residual.is_some() => note(format_args!("the current folder has no run store; {OUTPUT_HINT}")),
        None if job.watch.is_some() => note(OUTPUT_HINT),
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts the options to a request for the plugin. Rejects conflicting options before any file is read.
fn build_plugin_request(job: &InstrumentArguments) -> Result<PluginRequest> {
    let placeholder = || Some(SettingsFile::File(PathBuf::new()));
    let mut settings = Settings { time_limit_s: job.choices.time_limit, ..job.parameters.settings() };
    settings.interesting = if job.interesting.is_empty() { None } else { placeholder() };
    settings.watched = job.watch.as_ref().and_then(|_| placeholder());
    settings.segments = job.segments.as_ref().and_then(|_| placeholder());
    exclusions::check(&settings)?;
    if !job.interesting.is_empty() {
        let paths = interesting::read_interesting_paths(&job.interesting, &job.program)?;
        let interesting: usize = paths.functions().map(|(_, _, f)| f.known.len()).sum();
        let (path_count, function_count) =
            (plural(interesting as u128, "path", "paths"), plural(paths.len() as u128, "function", "functions"));
        note(format_args!("{path_count} of {function_count} {} interesting", if interesting == 1 { "is" } else { "are" }));
        settings.interesting = Some(experiment::store_known_paths(driver_context(), &paths)?);
    }
    if let Some(expression) = &job.watch {
        settings.watched = Some(experiment::store_known_paths(driver_context(), &watch::find_unmatched_paths(expression, &job.program)?)?);
    }
    if let Some(set) = &job.segments
        && let Some(kind) = ["tested:", "top:", "share:", "calls:"].into_iter().find(|kind| set.starts_with(kind))
    {
        ensure!(
            job.only.is_empty(),
            "--only cannot be combined with --segments {kind}, which already selects segments. Use --segments RUN"
        );
    }
    let set = match job.segments.as_deref().map(|set| (set, set.strip_prefix("tested:"))) {
        Some((_, Some(tests))) => Some(segments::tested_contexts(tests, job.depth as usize, &folders())?),
        Some((set, None)) => Some(segments::requested_segments(job.depth as usize, &job.only, set, &folders())?),
        None => None,
    };
    if let Some(set) = set.map(|set| set.with_max_growth_percent(job.choices.growth.unwrap_or(DEFAULT_MAX_GROWTH_PERCENT))) {
        let functions = plural(set.functions().len() as u128, "function", "functions");
        let is_selective = settings.scheme == Some(ExperimentScheme::Interesting(NumberingScheme::Pspp));
        ensure!(
            !(is_selective && set.counts_all_pairs()),
            "--scheme pspp cannot count these segments (paths across calls), because they include every path after their calls. Use \
             known-table or ball-larus"
        );
        note(format_args!("{} through {functions}", plural(set.len() as u128, "segment", "segments")));
        settings.segments = Some(SettingsFile::Stored(driver_context().inputs()?.put(&set.to_bytes())?));
    }
    experiment::resolve(driver_context(), settings)
}

/// Returns the settings that the instrumented program uses if environment variables do not override them. A program that counts only
/// untested paths writes its counts to the run store, if there is one.
fn choose_variant_defaults(job: &InstrumentArguments) -> VariantDefaults {
    let store = job.parameters.residual.as_ref().and_then(|_| RunStore::find(Path::new(".")).ok());
    let output = store.and_then(|store| {
        let folder = store.folder().join(FIELD_FOLDER);
        private::create_folder(&folder).ok()?;
        Some(format!("{}/%m.raw", fs::canonicalize(folder).ok()?.to_str()?.replace('%', "%%")))
    });
    let on_match = job.watch.as_ref().map(|_| PathAction::Report);
    VariantDefaults { output, on_untested: job.action.or(on_match).map(word), watched: job.watch.clone() }
}

/// Warns about functions in which all paths are counted instead of only the interesting paths.
fn warn_of_full_counting(image: &InstrumentedImage) {
    for map in image.frames.iter().filter_map(|f| f.map().ok()) {
        for function in &map.fully_counted {
            warn(format_args!(
                "{}: all paths of function `{}` are counted, not only the interesting ones: {}",
                map.source, function.name, function.reason
            ));
        }
    }
}

/// Describes the settings that the units of an image were instrumented with.
fn describe_experiments(image: &InstrumentedImage) -> String {
    let mut experiments: Vec<String> = image.frames.iter().filter_map(|f| f.map().ok()).map(|m| m.experiment.to_string()).collect();
    experiments.sort();
    experiments.dedup();
    experiments.join(" or ")
}
