//! Copies that divide something other than the counting of all paths: segments, path sequences, or watched paths.
//!
//! Functions are assigned in order of decreasing weight, each to the copy with the least weight (Graham's LPT). The lightest functions are
//! counted by all copies: if their counts differ, the copies did not execute the same.

use super::launching::{Runner, program, run_all, spec};
use super::outcomes::outcomes;
use super::preparation::{self, CopiesFailed, CopyInput, WorkFolder};
use super::spec::CopyOutcome;
use super::{CopiesRecorded, CopyContext, CopyJob, heap, run_of};
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

/// A partition of counting by functions.
pub trait Partition {
    /// Whether copies write streams.
    const STREAMS: bool;
    /// Variables of copies that have a value of their own.
    const VARIABLES: &'static [(&'static str, &'static str)] = &[];

    /// The settings of each copy.
    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>>;

    /// Combines the images of all copies so that nothing is counted twice. Also returns the differences between copies.
    ///
    /// # Errors
    /// Nothing was counted.
    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)>;

    /// Keeps other results than counts. `run` is the number of the stored run.
    fn keep(&self, job: &CopyJob, run: Option<u64>, work: &Path, context: CopyContext) -> Result<()>;
}

/// An assignment of functions, by number, to copies.
pub struct Divided {
    /// The functions that each copy counts.
    pub copies: Vec<BTreeSet<u32>>,
    /// The greatest weight of a copy, without the functions that all copies count.
    pub most: u64,
    /// The weight of all functions.
    pub all: u64,
}

/// The lightest of the functions, given by weight and number, which all copies count as a check.
pub fn checked(functions: &[(u64, u32)]) -> BTreeSet<u32> {
    let mut lightest = functions.to_vec();
    lightest.sort_by_key(|(weight, number)| (*weight, Reverse(*number)));
    let all: u64 = functions.iter().fold(0, |sum, f| sum.saturating_add(f.0));
    let mut few = 0u64;
    let is_checked = |(weight, _): &&(u64, u32)| {
        few = few.saturating_add(*weight);
        few.saturating_mul(100) <= all.saturating_mul(CHECKED_PERCENT)
    };
    lightest.iter().take_while(is_checked).map(|f| f.1).collect()
}

/// Assigns functions, given by weight and number, to copies.
pub fn divide(mut functions: Vec<(u64, u32)>, copies: usize) -> Divided {
    functions.sort_by_key(|(weight, number)| (Reverse(*weight), *number));
    // Copies that would count nothing are dropped.
    let copies = copies.min(functions.len().max(1));
    let all: u64 = functions.iter().map(|f| f.0).sum();
    let checked = checked(&functions);
    let mut loads: Vec<(u64, BTreeSet<u32>)> = vec![(0, checked.clone()); copies];
    for (weight, number) in functions.iter().filter(|f| !checked.contains(&f.1)) {
        let least = loads.iter_mut().min_by_key(|(load, _)| *load).expect("there is a copy");
        least.0 += weight;
        least.1.insert(*number);
    }
    let most = loads.iter().map(|l| l.0).max().unwrap_or(0);
    Divided { copies: loads.into_iter().map(|l| l.1).collect(), most, all }
}

/// Records a run with copies that share whole functions.
pub fn run<S: Partition>(
    job: &CopyJob,
    context: CopyContext,
    input: &dyn Fn() -> Result<CopyInput>,
    share: impl FnOnce(&Path) -> Result<S>,
) -> Result<CopiesRecorded> {
    let options = &job.options;
    let program = program(&job.what.command[0], context)?;
    let share = share(&program)?;
    preparation::check_destinations(job)?;
    let input = input()?;
    trodden_launch::temporary::disable_removal_on_signals();
    let stop = StopFlag::new()?;
    let mut work = WorkFolder::new(job, context.around)?;
    let runner = Runner { engine: options.engine.clone(), stop: &stop, context };
    let spec = spec(&job.what.command, Vec::new(), work.path(), options.private_folders, input, context);
    let counted = spec.and_then(|mut spec| {
        (spec.ignore_output, spec.streamed) = (options.ignore_output, S::STREAMS);
        spec.environment.retain(|(name, _)| S::VARIABLES.iter().all(|(own, _)| name.to_os() != *own));
        spec.environment.extend(S::VARIABLES.iter().map(|(name, value)| (OsStr::new(name).into(), OsStr::new(value).into())));
        let programs = make(&share.settings(context)?, &program, work.path(), context)?;
        heap::align(&programs, &program)?;
        spec.programs = programs.iter().map(|p| OsText::from(p.as_os_str())).collect();
        let _job = spec.write(work.path())?;
        count(job, &program, (&runner, work.path()), (&share, programs.len())).context(CopiesFailed)
    });
    let (profile, differences, outcome) = counted.map_err(|error| work.end_with(error, &stop))?;
    drop(stop);
    let delivered = deliver(&Collected { profile, problems: Vec::new() }, &job.what.destination, context.around)?;
    share.keep(job, delivered.run, work.path(), context)?;
    Ok(CopiesRecorded::new(job, work, outcome, differences, None, context))
}

/// Builds the copies. Their names have equal lengths, since the kernel puts them on the stack.
fn make(settings: &[Settings], program: &Path, work: &Path, context: CopyContext) -> Result<Vec<PathBuf>> {
    let make = |(at, settings): (usize, &Settings)| {
        let output = work.join(format!("copy-{at:04}"));
        let made = variant::create(
            context.driver,
            program,
            &output,
            &experiment::resolve(context.driver, settings.clone())?,
            &Defaults::default(),
        )?;
        ensure!(made.is_some(), "{} has no instrumented units: build it with trodden", program.display());
        Ok(output)
    };
    settings.iter().enumerate().map(make).collect()
}

/// Runs the copies. Returns their merged profile, their differences, and the outcome of the first one.
fn count<S: Partition>(
    job: &CopyJob,
    program: &Path,
    (runner, work): (&Runner, &Path),
    (share, copies): (&S, usize),
) -> Result<(Profile, Vec<String>, CopyOutcome)> {
    let (copies, _) = run_all(copies, work, runner)?;
    let mut differences = outcomes(&copies);
    let run = run_of(job, &copies, runner.context);
    let profiles = copies.iter().map(|copy| copy.profile.clone()).collect();
    let (mut images, different) = share.merge(profiles, work)?;
    // The files of the copies will be removed with their folder.
    for image in images.iter_mut().filter(|image| Path::new(&image.path).starts_with(work)) {
        image.path = program.display().to_string();
    }
    differences.extend(different);
    let mut profile = Profile { run, images, sampling: None };
    profile.run.diverged = differences.len() as u64;
    Ok((profile, differences, copies[0].outcome.clone()))
}
