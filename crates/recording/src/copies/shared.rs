//! Copies that divide segments, path sequences, watched paths or interesting paths.
//!
//! Functions are assigned to copies in order of decreasing weight, each to the copy with the least weight so far (Graham's LPT rule). All
//! copies count the lightest functions. If copies disagree on these counts, they did not execute the same paths.

use super::launching::{CopyRunner, build_job_spec, resolve_program, run_all_copies};
use super::outcomes::describe_outcome_differences;
use super::preparation::{self, CopiesFailedError, CopyInput, WorkFolder};
use super::spec::CopyOutcome;
use super::{CopyContext, CopyJob, RecordedCopies, combine_run_metadata, heap};
use crate::deliver_profile;
use anyhow::{Context, Result, ensure};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use trodden_driver::experiment;
use trodden_driver::recipe::OsText;
use trodden_driver::variant::{self, VariantDefaults};
use trodden_launch::StopFlag;
use trodden_profile::{CollectedProfile, ImageProfile, Profile};
use trodden_unit::Settings;

/// Maximum weight of the functions that all copies count, as a percentage of the total weight.
const MAX_CHECKED_WEIGHT_PERCENT: u64 = 2;

/// Source file of a function's unit, and linkage name of the function.
pub type NamedFunction = (String, String);

/// A way to divide the counting of a program among copies, and to merge their counts.
pub trait CopyPartition {
    /// True if copies write streams.
    const WRITES_STREAMS: bool;
    /// Environment variables that each instrumented program runs with. They override the user's values.
    const VARIABLES: &'static [(&'static str, &'static str)] = &[];

    /// Returns the settings with which each copy is built.
    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>>;

    /// Combines the images of all copies without counting anything twice, and returns them with the differences between copies. Fails if
    /// nothing was counted.
    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)>;

    /// Stores results other than counts. `run` is the number of the run, if it was stored.
    fn store_results(&self, job: &CopyJob, run: Option<u64>, work: &Path, context: CopyContext) -> Result<()>;
}

/// An assignment of functions to copies. Functions are given by number.
pub struct AssignedFunctions {
    /// For each copy, the functions that it counts.
    pub copies: Vec<BTreeSet<u32>>,
    /// The greatest weight of a copy, without functions that all copies count.
    pub max_load: u64,
    pub total_weight: u64,
}

/// Selects the lightest functions, which all copies count as a check. Functions are given by weight and number.
pub fn lightest_functions(functions: &[(u64, u32)]) -> BTreeSet<u32> {
    let mut lightest = functions.to_vec();
    lightest.sort_by_key(|(weight, number)| (*weight, Reverse(*number)));
    let all: u64 = functions.iter().fold(0, |sum, f| sum.saturating_add(f.0));
    let mut selected = 0u64;
    let is_selected = |(weight, _): &&(u64, u32)| {
        selected = selected.saturating_add(*weight);
        selected.saturating_mul(100) <= all.saturating_mul(MAX_CHECKED_WEIGHT_PERCENT)
    };
    lightest.iter().take_while(is_selected).map(|f| f.1).collect()
}

/// Assigns functions to copies. Functions are given by weight and number.
pub fn divide_functions(mut functions: Vec<(u64, u32)>, copies: usize) -> AssignedFunctions {
    functions.sort_by_key(|(weight, number)| (Reverse(*weight), *number));
    // A copy that would count nothing is not made.
    let copies = copies.min(functions.len().max(1));
    let total_weight: u64 = functions.iter().map(|f| f.0).sum();
    let shared = lightest_functions(&functions);
    let mut loads: Vec<(u64, BTreeSet<u32>)> = vec![(0, shared.clone()); copies];
    for (weight, number) in functions.iter().filter(|f| !shared.contains(&f.1)) {
        let least = loads.iter_mut().min_by_key(|(load, _)| *load).expect("at least one copy");
        least.0 += weight;
        least.1.insert(*number);
    }
    let max_load = loads.iter().map(|l| l.0).max().unwrap_or(0);
    AssignedFunctions { copies: loads.into_iter().map(|l| l.1).collect(), max_load, total_weight }
}

/// Records a run with copies. `create_partition` creates the partition, given the program's path.
pub fn record_with_partition<P: CopyPartition>(
    job: &CopyJob,
    context: CopyContext,
    input: &dyn Fn() -> Result<CopyInput>,
    create_partition: impl FnOnce(&Path) -> Result<P>,
) -> Result<RecordedCopies> {
    let options = &job.options;
    let program = resolve_program(&job.what.command[0], context)?;
    let partition = create_partition(&program)?;
    preparation::check_destinations(job)?;
    let input = input()?;
    trodden_launch::temporary::disable_removal_on_signals();
    let stop = StopFlag::new()?;
    let mut work = WorkFolder::new(job, context.recording)?;
    let runner = CopyRunner { engine: options.engine.clone(), stop: &stop, context };
    let spec = build_job_spec(&job.what.command, Vec::new(), work.path(), options.private_folders, input, context);
    let counted = spec.and_then(|mut spec| {
        (spec.ignore_output, spec.streamed) = (options.ignore_output, P::WRITES_STREAMS);
        spec.environment.retain(|(name, _)| P::VARIABLES.iter().all(|(own, _)| name.to_os() != *own));
        spec.environment.extend(P::VARIABLES.iter().map(|(name, value)| (OsStr::new(name).into(), OsStr::new(value).into())));
        let programs = build_copies(&partition.settings(context)?, &program, work.path(), context)?;
        heap::extend_segments_to_align_heaps(&programs, &program)?;
        spec.programs = programs.iter().map(|p| OsText::from(p.as_os_str())).collect();
        let _job = spec.write(work.path())?;
        run_and_merge(job, &program, (&runner, work.path()), (&partition, programs.len())).context(CopiesFailedError)
    });
    let (profile, differences, outcome) = counted.map_err(|error| work.finish_with_error(error, &stop))?;
    drop(stop);
    let delivered = deliver_profile(&CollectedProfile { profile, problems: Vec::new() }, &job.what.destination, context.recording)?;
    partition.store_results(job, delivered.run, work.path(), context)?;
    Ok(RecordedCopies::new(job, work, outcome, differences, None, context))
}

/// Builds the copies. Their paths have equal lengths, because the kernel puts a program's path on its stack.
fn build_copies(settings: &[Settings], program: &Path, work: &Path, context: CopyContext) -> Result<Vec<PathBuf>> {
    let build = |(at, settings): (usize, &Settings)| {
        let output = work.join(format!("copy-{at:04}"));
        let made = variant::create(
            context.driver,
            program,
            &output,
            &experiment::resolve(context.driver, settings.clone())?,
            &VariantDefaults::default(),
        )?;
        ensure!(made.is_some(), "{} has no part that was compiled by trodden. Build it with trodden", program.display());
        Ok(output)
    };
    settings.iter().enumerate().map(build).collect()
}

/// Runs the copies. Returns the merged profile, the differences between copies, and the first copy's outcome.
fn run_and_merge<P: CopyPartition>(
    job: &CopyJob,
    program: &Path,
    (runner, work): (&CopyRunner, &Path),
    (partition, copies): (&P, usize),
) -> Result<(Profile, Vec<String>, CopyOutcome)> {
    let (copies, _) = run_all_copies(copies, work, runner)?;
    let mut differences = describe_outcome_differences(&copies);
    let run = combine_run_metadata(job, &copies, runner.context);
    let profiles = copies.iter().map(|copy| copy.profile.clone()).collect();
    let (mut images, different) = partition.merge(profiles, work)?;
    // Images name the original program, because the copies will be removed.
    for image in images.iter_mut().filter(|image| Path::new(&image.path).starts_with(work)) {
        image.path = program.display().to_string();
    }
    differences.extend(different);
    let mut profile = Profile { run, images, sampling: None };
    profile.run.diverged = differences.len() as u64;
    Ok((profile, differences, copies[0].outcome.clone()))
}
