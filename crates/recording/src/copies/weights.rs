//! By what the counting is divided: a profile that the user names, else the newest runs of the same build in the run
//! store, else a first run that is cheap because it is sampled.
//!
//! Whatever the weights are, the copies' profile is exact; only how evenly the work is divided depends on them.

use super::before::Failed;
use super::launching::{Runner, launch, results};
use super::make::{CopiedProgram, Weights};
use super::objects::Objects;
use super::spec::Spec;
use super::{CopyContext, CopyJob};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trodden_driver::experiment;
use trodden_driver::recipe::SystemText;
use trodden_driver::variant::Inputs;
use trodden_partition::PartitionStrategy;
use trodden_profile::merge::{Builds, Merger};
use trodden_profile::{Profile, RunEntry, RunStore};
use trodden_stored::named;
use trodden_unit::Identity;

/// The folder of the first run, in the job's.
const FIRST: &str = "first";
/// That of the same run, counted in full.
const FIRST_WHOLE: &str = "first-whole";
/// So many runs divide the counting at most.
const MOST_RUNS: usize = 4;
/// A run that takes longer is not repeated for want of samples.
const SHORT: Duration = Duration::from_secs(1);

/// Finds weights or runs the program for them; `None` if there are none, and frequencies have to be estimated.
///
/// # Errors
/// The profile that the user names cannot be read, or the first run fails.
pub fn find(job: &CopyJob, program: &CopiedProgram, spec: &Spec, folder: &Path, runner: &Runner) -> Result<Option<Weights>> {
    let options = &job.options;
    if let Some(wanted) = &options.weights {
        return Ok(Some(Weights { profile: named::load(wanted)?, same_input: false }));
    }
    if options.strategy != PartitionStrategy::Weighted {
        return Ok(None);
    }
    if let Some(profile) = recent(program.divided.identity, &job.what.command, runner.context)? {
        return Ok(Some(Weights { profile, same_input: false }));
    }
    if options.no_first_run || program.is_residual() {
        log::info!(
            "no run of this build is in the run store, so the counting is divided by estimated frequencies: record one for a better \
                partition",
        );
        return Ok(None);
    }
    first_run(program, spec, folder, runner)
}

/// The newest runs of a build in the run store, added up: a single one may be unlike all others. Each weighs as much as
/// another, however long it took.
///
/// # Errors
/// The run store cannot be read.
pub fn recent(identity: Identity, command: &[OsString], context: CopyContext) -> Result<Option<Profile>> {
    let Ok(store) = RunStore::find(&context.around.directory) else { return Ok(None) };
    let mut runs = store.list()?;
    runs.retain(|run| run.images.iter().any(|image| image.identity == identity));
    runs.reverse();
    let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let is_same = |run: &RunEntry| run.run.command.iter().eq(&command);
    // Two runs of the same command are better than one of it and others.
    if runs.iter().filter(|run| is_same(run)).count() > 1 {
        runs.retain(is_same);
    } else {
        runs.sort_by_key(|run| !is_same(run));
    }
    let (mut used, mut profiles) = (Vec::new(), Vec::new());
    for run in &runs {
        match store.load(run) {
            Ok(profile) if executions(&profile, identity) > 0 => {
                used.push(run);
                profiles.push(profile);
            }
            Ok(_) => {}
            Err(error) => log::warn!("run {} cannot be used to divide the counting: {error}", run.number),
        }
        if used.len() == MOST_RUNS {
            break;
        }
    }
    match used.as_slice() {
        [] => return Ok(None),
        [one] => log::info!("the counting is divided by run {}, the newest of this build ({})", one.number, name(one)),
        several => {
            let named: Vec<String> = several.iter().map(|run| format!("{} ({})", run.number, name(run))).collect();
            log::info!("the counting is divided by {} runs of this build, each of the same weight: {}", several.len(), named.join(", "));
        }
    }
    Ok(alike(profiles, identity))
}

/// What a run is called.
fn name(run: &RunEntry) -> String {
    match (&run.run.test, &run.run.suite) {
        (Some(test), _) => format!("test {test}"),
        (None, _) if !run.run.command.is_empty() => run.run.command.join(" "),
        (None, Some(suite)) => format!("suite {suite}"),
        (None, None) => "several commands".into(),
    }
}

/// Adds profiles of a build up after their counts were made as large as those of the largest.
fn alike(mut profiles: Vec<Profile>, identity: Identity) -> Option<Profile> {
    let most = profiles.iter().map(|profile| executions(profile, identity)).max()?;
    let mut sum = Merger::new(Builds::Separate);
    for (at, profile) in profiles.iter_mut().enumerate() {
        let own = executions(profile, identity);
        profile.images.retain(|image| image.identity == identity);
        let counts = profile.images.iter_mut().flat_map(|image| &mut image.units).flat_map(|unit| &mut unit.counts.executions);
        counts.for_each(|(_, count)| *count = u64::try_from(u128::from(*count) * most / own).unwrap_or(u64::MAX));
        // They are of one build, so nothing is refused.
        let _ = sum.add(&at.to_string(), profile.clone());
    }
    sum.finish()
}

/// Executions of all paths of an image.
fn executions(profile: &Profile, identity: Identity) -> u128 {
    let units = profile.images.iter().filter(|image| image.identity == identity).flat_map(|image| &image.units);
    units.flat_map(|unit| &unit.counts.executions).map(|(_, count)| u128::from(*count)).sum()
}

/// Runs a sampled variant of the program as copies are run; one that ends before a sample is taken runs once more and
/// is counted in full, which takes no time either. A program of few innermost loops may run long, and never come to
/// where a sample begins: then there are no weights.
fn first_run(program: &CopiedProgram, spec: &Spec, folder: &Path, runner: &Runner) -> Result<Option<Weights>> {
    log::info!(
        "no run of this build is in the run store: the program runs once before the copies, sampled, to divide the counting by \
            (--weights PROFILE says by what instead)",
    );
    let own = folder.join(FIRST);
    fs::create_dir(&own).with_context(|| format!("cannot make {}", own.display()))?;
    let sampled = make_sampled(program, &own, runner)?;
    let (profile, took) = run_first(&sampled, true, spec, &own, runner)?;
    if profile.images.iter().any(|image| image.units.iter().any(|unit| !unit.counts.executions.is_empty())) {
        return Ok(Some(Weights { profile, same_input: true }));
    }
    if took > SHORT {
        log::info!(
            "no sample was taken in {:.1} s, as the program hardly leaves its innermost loops: the counting is divided by estimated \
                frequencies; --weights takes a profile",
            took.as_secs_f64()
        );
        return Ok(None);
    }
    log::info!("the program ended before a sample was taken: it runs once more, counted in full");
    let own = folder.join(FIRST_WHOLE);
    fs::create_dir(&own).with_context(|| format!("cannot make {}", own.display()))?;
    let (profile, _) = run_first(Path::new(&program.divided.path), false, spec, &own, runner)?;
    Ok(Some(Weights { profile, same_input: true }))
}

/// The profile of a run, and how long it took.
fn run_first(file: &Path, sampled: bool, spec: &Spec, folder: &Path, runner: &Runner) -> Result<(Profile, Duration)> {
    let mut spec = spec.clone();
    (spec.programs, spec.sampled) = (vec![SystemText::from(file.as_os_str())], sampled);
    let _job = spec.write(folder)?;
    match launch(folder, &[0], runner) {
        // A second result, of a node that was not lost after all, cannot be the same: samples are taken by time.
        Err(error) if matches!(error.downcast_ref(), Some(trodden_launch::Error::Duplicate { .. })) => {}
        other => drop(other.context(Failed).context("the first run, by which the counting is to be divided, fails")?),
    }
    let run = results(folder, &[0], runner.context)?.remove(0);
    Ok((run.profile, Duration::from_nanos(run.times.wall_ns)))
}

fn make_sampled(program: &CopiedProgram, folder: &Path, runner: &Runner) -> Result<PathBuf> {
    let inputs = Inputs::from_program(runner.context.driver, Path::new(&program.divided.path))?;
    let (settings, driver) = (program.sampled(), runner.context.driver);
    let mut objects = Objects::with(&settings, runner.context)?;
    let made = inputs.frames.iter().map(|frame| (frame.unit, objects.want(frame, None))).collect();
    objects.make(runner.stop)?;
    let sampled = folder.join("sampled");
    inputs
        .link_with(driver, made, &sampled, &experiment::file(driver, &experiment::resolve(driver, settings.clone())?)?, None)
        .context("the program cannot be linked for a first run")?;
    Ok(sampled)
}
