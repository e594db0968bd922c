//! Finds the path frequencies that guide the division among copies. They come from a profile that the user names, from the latest runs of
//! the build in the run store, or from a first run, which is sampled to make it cheap. They affect only how evenly the work is divided; the
//! merged profile is always exact.

use super::launching::{CopyRunner, launch_copies, read_results};
use super::make::{CopiedProgram, PartitionProfile};
use super::objects::CopyObjects;
use super::preparation::CopiesFailedError;
use super::spec::CopyJobSpec;
use super::{CopyContext, CopyJob};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trodden_driver::experiment;
use trodden_driver::recipe::OsText;
use trodden_driver::variant::LinkInputs;
use trodden_partition::PartitionStrategy;
use trodden_profile::merge::{BuildPolicy, ProfileMerger};
use trodden_profile::{Profile, RunEntry, RunStore};
use trodden_stored::named;
use trodden_unit::Identity;

const FIRST_RUN_FOLDER: &str = "first";
const FULL_RUN_FOLDER: &str = "first-whole";
/// Maximum number of stored runs that guide the division.
const MAX_MERGED_RUNS: usize = 4;
/// A first run without samples is repeated, with full counting, only if it took at most this long.
const MAX_REPEATED_RUN_DURATION: Duration = Duration::from_secs(1);

/// Finds stored frequencies, or runs the program once to measure them. Returns `None` if they must be estimated. Fails if the profile that
/// the user named cannot be read, or the first run failed.
pub fn find_frequencies(
    job: &CopyJob,
    program: &CopiedProgram,
    spec: &CopyJobSpec,
    folder: &Path,
    runner: &CopyRunner,
) -> Result<Option<PartitionProfile>> {
    let options = &job.options;
    if let Some(name) = &options.weights {
        return Ok(Some(PartitionProfile { profile: named::load_profile(name)?, same_input: false }));
    }
    if options.strategy != PartitionStrategy::Weighted {
        return Ok(None);
    }
    if let Some(profile) = find_recent_profile(program.original.identity, &job.what.command, runner.context)? {
        return Ok(Some(PartitionProfile { profile, same_input: false }));
    }
    if options.no_first_run || program.is_residual() {
        log::info!(
            "the paths are divided among the copies by estimated frequencies, since the run store has no run of this build. To use \
             measured frequencies, record a run",
        );
        return Ok(None);
    }
    sample_first_run(program, spec, folder, runner)
}

/// Merges the latest runs of a build in the run store, because a single run may be untypical. All runs have the same weight, regardless of
/// their length.
pub fn find_recent_profile(identity: Identity, command: &[OsString], context: CopyContext) -> Result<Option<Profile>> {
    let Ok(store) = RunStore::find(&context.recording.directory) else { return Ok(None) };
    let mut runs = store.list()?;
    runs.retain(|run| run.images.iter().any(|image| image.identity == identity));
    runs.reverse();
    let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let is_same = |run: &RunEntry| run.run.command.iter().eq(&command);
    // If there are several runs of this very command, only these are used.
    if runs.iter().filter(|run| is_same(run)).count() > 1 {
        runs.retain(is_same);
    } else {
        runs.sort_by_key(|run| !is_same(run));
    }
    let (mut used, mut profiles) = (Vec::new(), Vec::new());
    for run in &runs {
        match store.load(run) {
            Ok(profile) if count_path_executions(&profile, identity) > 0 => {
                used.push(run);
                profiles.push(profile);
            }
            Ok(_) => {}
            Err(error) => {
                log::warn!("cannot use the counts of run {} to divide the paths among copies of the program: {error}", run.number)
            }
        }
        if used.len() == MAX_MERGED_RUNS {
            break;
        }
    }
    match used.as_slice() {
        [] => return Ok(None),
        [one] => log::info!(
            "the paths are divided among the copies according to run {}, the latest of this build ({})",
            one.number,
            describe_run(one)
        ),
        several => {
            let named: Vec<String> = several.iter().map(|run| format!("{} ({})", run.number, describe_run(run))).collect();
            log::info!(
                "the paths are divided among the copies according to {} runs of this build, with equal weights: {}",
                several.len(),
                named.join(", ")
            );
        }
    }
    Ok(merge_with_equal_weights(profiles, identity))
}

fn describe_run(run: &RunEntry) -> String {
    match (&run.run.test, &run.run.suite) {
        (Some(test), _) => format!("test {test}"),
        (None, _) if !run.run.command.is_empty() => run.run.command.join(" "),
        (None, Some(suite)) => format!("suite {suite}"),
        (None, None) => "several commands".into(),
    }
}

/// Merges profiles of a build, after scaling the counts of each profile so that all have the same total.
fn merge_with_equal_weights(mut profiles: Vec<Profile>, identity: Identity) -> Option<Profile> {
    let most = profiles.iter().map(|profile| count_path_executions(profile, identity)).max()?;
    let mut sum = ProfileMerger::new(BuildPolicy::Separate);
    for (at, profile) in profiles.iter_mut().enumerate() {
        let own = count_path_executions(profile, identity);
        profile.images.retain(|image| image.identity == identity);
        let counts = profile.images.iter_mut().flat_map(|image| &mut image.units).flat_map(|unit| &mut unit.counts.executions);
        counts.for_each(|(_, count)| *count = u64::try_from(u128::from(*count) * most / own).unwrap_or(u64::MAX));
        // All profiles are of the same build, so the merger rejects none.
        let _ = sum.add(&at.to_string(), profile.clone());
    }
    sum.into_merged_profile()
}

/// Returns the total number of executed paths in an image.
fn count_path_executions(profile: &Profile, identity: Identity) -> u128 {
    let units = profile.images.iter().filter(|image| image.identity == identity).flat_map(|image| &image.units);
    units.flat_map(|unit| &unit.counts.executions).map(|(_, count)| u128::from(*count)).sum()
}

/// Runs a sampled variant of the program once, under the same conditions as copies. If a short run ends before a sample is taken, repeats
/// it with full counting. Returns `None` if a long run yields no samples, which means that it stays in innermost loops, where no sample
/// begins.
fn sample_first_run(program: &CopiedProgram, spec: &CopyJobSpec, folder: &Path, runner: &CopyRunner) -> Result<Option<PartitionProfile>> {
    log::info!(
        "the run store has no run of this build, so the program first runs once, with sampling, to measure how often each path is taken. \
         To avoid this run, pass --weights PROFILE",
    );
    let own = folder.join(FIRST_RUN_FOLDER);
    fs::create_dir(&own).with_context(|| format!("cannot create the folder {}", own.display()))?;
    let sampled = build_sampled_variant(program, &own, runner)?;
    let (profile, took) = run_program_once(&sampled, true, spec, &own, runner)?;
    if profile.images.iter().any(|image| image.units.iter().any(|unit| !unit.counts.executions.is_empty())) {
        return Ok(Some(PartitionProfile { profile, same_input: true }));
    }
    if took > MAX_REPEATED_RUN_DURATION {
        log::info!(
            "no sample was taken in {:.1} s, because the program rarely leaves its innermost loops. Therefore, the paths are divided among \
             the copies by estimated frequencies; to use measured ones, pass a profile with --weights",
            took.as_secs_f64()
        );
        return Ok(None);
    }
    log::info!("the program ended before a sample was taken, so it runs once more with full counting");
    let own = folder.join(FULL_RUN_FOLDER);
    fs::create_dir(&own).with_context(|| format!("cannot create the folder {}", own.display()))?;
    let (profile, _) = run_program_once(Path::new(&program.original.path), false, spec, &own, runner)?;
    Ok(Some(PartitionProfile { profile, same_input: true }))
}

fn run_program_once(file: &Path, sampled: bool, spec: &CopyJobSpec, folder: &Path, runner: &CopyRunner) -> Result<(Profile, Duration)> {
    let mut spec = spec.clone();
    (spec.programs, spec.sampled) = (vec![OsText::from(file.as_os_str())], sampled);
    let _job = spec.write(folder)?;
    match launch_copies(folder, &[0], runner) {
        // A node that was presumed lost may still deliver a second result. Sampled results depend on time, so it is no error if the two
        // differ.
        Err(error) if matches!(error.downcast_ref(), Some(trodden_launch::LaunchError::Duplicate { .. })) => {}
        other => drop(
            other
                .context(CopiesFailedError)
                .context("the preliminary run of the program, which measures how often each path is taken, failed")?,
        ),
    }
    let run = read_results(folder, &[0], runner.context)?.remove(0);
    Ok((run.profile, Duration::from_nanos(run.times.wall_ns)))
}

fn build_sampled_variant(program: &CopiedProgram, folder: &Path, runner: &CopyRunner) -> Result<PathBuf> {
    let inputs = LinkInputs::from_program(runner.context.driver, Path::new(&program.original.path))?;
    let (settings, driver) = (program.sampled_settings(), runner.context.driver);
    let mut objects = CopyObjects::new(&settings, &inputs.llvm, runner.context)?;
    let made = inputs.frames.iter().map(|frame| (frame.unit, objects.request_object(frame, None))).collect();
    objects.compile_missing_objects(runner.stop)?;
    let sampled = folder.join("sampled");
    inputs
        .link_with(driver, made, &sampled, &experiment::write_request(driver, &experiment::resolve(driver, settings.clone())?)?, None)
        .context("cannot link the program for the preliminary run, which measures how often each path is taken")?;
    Ok(sampled)
}
