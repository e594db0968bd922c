//! Copies that divide segments, path sequences, or watched or interesting paths.
//!
//! Functions are assigned in order of decreasing weight, each to the copy with the least weight (Graham's LPT). All copies count the
//! lightest functions: if these counts differ, the copies did not execute the same paths.

use super::launching::{CopyRunner, build_spec, resolve_program, run_all};
use super::outcomes::outcome_differences;
use super::preparation::{self, CopiesFailed, CopyInput, WorkFolder};
use super::spec::CopyOutcome;
use super::{CopiesRecorded, CopyContext, CopyJob, combined_run, heap};
use crate::deliver;
use anyhow::{Context, Result, ensure};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use trodden_driver::experiment;
use trodden_driver::recipe::OsText;
use trodden_driver::variant::{self, Defaults};
use trodden_launch::StopFlag;
use trodden_profile::{Collected, ImageProfile, Profile};
use trodden_unit::Settings;

/// Maximum weight of the functions that all copies count, in percent of the total.
const CHECKED_PERCENT: u64 = 2;

/// A function by the source of its unit and its linkage name.
pub type NamedFunction = (String, String);

/// Divides the counting of a program among copies, and merges their counts.
pub trait Partition {
    /// True if copies write streams.
    const STREAMS: bool;
    /// Environment variables of copies, and the values that replace the user's.
    const VARIABLES: &'static [(&'static str, &'static str)] = &[];

    /// The settings of each copy.
    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>>;

    /// Combines the images of all copies, without counting anything twice. Also returns the differences between copies.
    ///
    /// # Errors
    /// Nothing was counted.
    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)>;

    /// Stores results other than counts. `run` is the number of the stored run.
    fn store_results(&self, job: &CopyJob, run: Option<u64>, work: &Path, context: CopyContext) -> Result<()>;
}

/// An assignment of functions, by number, to copies.
pub struct Divided {
    /// The functions that each copy counts.
    pub copies: Vec<BTreeSet<u32>>,
    /// The greatest weight of a copy, not counting the functions that all copies have.
    pub max_load: u64,
    /// The total weight of all functions.
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
        selected.saturating_mul(100) <= all.saturating_mul(CHECKED_PERCENT)
    };
    lightest.iter().take_while(is_selected).map(|f| f.1).collect()
}

/// Assigns functions to copies. Functions are given by weight and number.
pub fn divide(mut functions: Vec<(u64, u32)>, copies: usize) -> Divided {
    functions.sort_by_key(|(weight, number)| (Reverse(*weight), *number));
    // Copies that would count nothing are dropped.
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
    Divided { copies: loads.into_iter().map(|l| l.1).collect(), max_load, total_weight }
}

/// Records a run with the copies of a partition, which `create_partition` makes for the path of the program.
pub fn run<P: Partition>(
    job: &CopyJob,
    context: CopyContext,
    input: &dyn Fn() -> Result<CopyInput>,
    create_partition: impl FnOnce(&Path) -> Result<P>,
) -> Result<CopiesRecorded> {
    let options = &job.options;
    let program = resolve_program(&job.what.command[0], context)?;
    let partition = create_partition(&program)?;
    preparation::check_destinations(job)?;
    let input = input()?;
    trodden_launch::temporary::disable_removal_on_signals();
    let stop = StopFlag::new()?;
    let mut work = WorkFolder::new(job, context.recording)?;
    let runner = CopyRunner { engine: options.engine.clone(), stop: &stop, context };
    let spec = build_spec(&job.what.command, Vec::new(), work.path(), options.private_folders, input, context);
    let counted = spec.and_then(|mut spec| {
        (spec.ignore_output, spec.streamed) = (options.ignore_output, P::STREAMS);
        spec.environment.retain(|(name, _)| P::VARIABLES.iter().all(|(own, _)| name.to_os() != *own));
        spec.environment.extend(P::VARIABLES.iter().map(|(name, value)| (OsStr::new(name).into(), OsStr::new(value).into())));
        let programs = build_copies(&partition.settings(context)?, &program, work.path(), context)?;
        heap::align(&programs, &program)?;
        spec.programs = programs.iter().map(|p| OsText::from(p.as_os_str())).collect();
        let _job = spec.write(work.path())?;
        run_and_merge(job, &program, (&runner, work.path()), (&partition, programs.len())).context(CopiesFailed)
    });
    let (profile, differences, outcome) = counted.map_err(|error| work.finish_with_error(error, &stop))?;
    drop(stop);
    let delivered = deliver(&Collected { profile, problems: Vec::new() }, &job.what.destination, context.recording)?;
    partition.store_results(job, delivered.run, work.path(), context)?;
    Ok(CopiesRecorded::new(job, work, outcome, differences, None, context))
}

/// Builds the copies. Their paths have equal lengths, since the kernel puts them on the stack.
fn build_copies(settings: &[Settings], program: &Path, work: &Path, context: CopyContext) -> Result<Vec<PathBuf>> {
    let build = |(at, settings): (usize, &Settings)| {
        let output = work.join(format!("copy-{at:04}"));
        let made = variant::create(
            context.driver,
            program,
            &output,
            &experiment::resolve(context.driver, settings.clone())?,
            &Defaults::default(),
        )?;
        ensure!(made.is_some(), "{} has no instrumented units. Build it with trodden", program.display());
        Ok(output)
    };
    settings.iter().enumerate().map(build).collect()
}

/// Runs the copies. Returns the merged profile, the differences, and the outcome of the first copy.
fn run_and_merge<P: Partition>(
    job: &CopyJob,
    program: &Path,
    (runner, work): (&CopyRunner, &Path),
    (partition, copies): (&P, usize),
) -> Result<(Profile, Vec<String>, CopyOutcome)> {
    let (copies, _) = run_all(copies, work, runner)?;
    let mut differences = outcome_differences(&copies);
    let run = combined_run(job, &copies, runner.context);
    let profiles = copies.iter().map(|copy| copy.profile.clone()).collect();
    let (mut images, different) = partition.merge(profiles, work)?;
    // The files of the copies will be removed with their folder.
    for image in images.iter_mut().filter(|image| Path::new(&image.path).starts_with(work)) {
        image.path = program.display().to_string();
    }
    differences.extend(different);
    let mut profile = Profile { run, images, sampling: None };
    profile.run.diverged = differences.len() as u64;
    Ok((profile, differences, copies[0].outcome.clone()))
}
