//! Copies that share the counting of something else than paths, by whole functions: segments that end in one, the sequence of its paths.
//!
//! Functions go to copies by their weights, the heaviest first, each to the copy that has least (Graham's LPT). Those of little weight are
//! counted by all copies: if their counts differ, the copies were not the same execution.

use super::{
    CopyInput, Failed, Runner, WorkFolder, before, bring_back, deliver, engine, exit_code, heap, outcomes, print_output, program, run_of,
    run_to_ends, spec,
};
use crate::cli::Record;
use crate::commands::copies::spec::CopyOutcome;
use crate::context::context;
use crate::surroundings::surroundings;
use anyhow::{Context, Result, ensure};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_driver::experiment;
use trodden_driver::recipe::SystemText;
use trodden_driver::variant::{self, Defaults};
use trodden_launch::LaunchStop;
use trodden_profile::{Collected, ImageProfile, Profile};
use trodden_unit::Settings;

/// Of all weight that of functions that all copies count, in percent.
const CHECKED_PERCENT: u64 = 2;

/// How the counting of something is shared.
pub trait Partition {
    /// Whether copies write streams.
    const STREAMS: bool;

    /// What each copy is asked to count.
    ///
    /// # Errors
    /// It cannot be stored.
    fn settings(&self) -> Result<Vec<Settings>>;

    /// The images of all copies, in which nothing is counted twice; and where copies counted the same otherwise.
    ///
    /// # Errors
    /// Nothing was counted.
    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)>;

    /// Keeps what else than counts there is, of a run of that number.
    ///
    /// # Errors
    /// There is no place for it.
    fn keep(&self, record: &Record, run: Option<u64>, work: &Path) -> Result<()>;
}

/// Functions, by number, as they are divided.
pub struct Divided {
    /// For each copy the functions that it counts.
    pub copies: Vec<BTreeSet<u32>>,
    /// Those that all count.
    pub checked: BTreeSet<u32>,
    /// The weight of the copy that has most.
    pub most: u64,
    /// That of all functions.
    pub all: u64,
}

/// Divides functions, given by weight and number.
pub fn divide(mut functions: Vec<(u64, u32)>, copies: usize) -> Divided {
    functions.sort_by_key(|(weight, number)| (Reverse(*weight), *number));
    // A copy that counts nothing is of no use.
    let copies = copies.min(functions.len().max(1));
    let all: u64 = functions.iter().map(|f| f.0).sum();
    let mut few = 0;
    let is_checked = |(weight, _): &&(u64, u32)| {
        few += weight;
        few.saturating_mul(100) <= all.saturating_mul(CHECKED_PERCENT)
    };
    let checked: BTreeSet<u32> = functions.iter().rev().take_while(is_checked).map(|f| f.1).collect();
    let mut loads: Vec<(u64, BTreeSet<u32>)> = vec![(0, checked.clone()); copies];
    for (weight, number) in functions.iter().filter(|f| !checked.contains(&f.1)) {
        let least = loads.iter_mut().min_by_key(|(load, _)| *load).expect("there is a copy");
        least.0 += weight;
        least.1.insert(*number);
    }
    let most = loads.iter().map(|l| l.0).max().unwrap_or(0);
    Divided { copies: loads.into_iter().map(|l| l.1).collect(), checked, most, all }
}

/// Records a run by copies; gives the program's exit status, or 1 if the copies were not the same execution.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run<S: Partition>(record: &Record, share: impl FnOnce(&Path) -> Result<S>) -> Result<ExitCode> {
    let options = &record.copies;
    let engine = engine(options)?;
    let program = program(&record.command[0])?;
    let share = share(&program)?;
    before::check_destinations(record)?;
    let input = CopyInput::read(options.input.as_deref())?;
    trodden_launch::temporary::take_signals();
    let stop = LaunchStop::new()?;
    let mut work = WorkFolder::from_record(record)?;
    let spec = spec(&record.command, Vec::new(), work.path(), options.own_folders, input);
    let counted = spec.and_then(|mut spec| {
        (spec.ignore_output, spec.streamed) = (options.ignore_output, S::STREAMS);
        let programs = make(&share.settings()?, &program, work.path())?;
        heap::align(&programs, &program)?;
        spec.programs = programs.iter().map(|p| SystemText::from(p.as_os_str())).collect();
        let _job = spec.write(work.path())?;
        count(record, &program, (&Runner { engine, stop: &stop }, work.path()), (&share, programs.len())).context(Failed)
    });
    let (profile, differences, outcome) = counted.map_err(|error| work.end_with(error, &stop))?;
    drop(stop);
    let delivered = deliver(&Collected { profile, problems: Vec::new() }, &record.destination.value(), &surroundings())?;
    share.keep(record, delivered.run, work.path())?;
    print_output(work.path())?;
    bring_back(record, work.path())?;
    Ok(exit_code(&differences, &outcome))
}

/// Makes the copies. Their names have one length, since the kernel puts them on the stack.
fn make(settings: &[Settings], program: &Path, work: &Path) -> Result<Vec<PathBuf>> {
    let make = |(at, settings): (usize, &Settings)| {
        let output = work.join(format!("copy-{at:04}"));
        let made = variant::make(context(), program, &output, &experiment::resolve(context(), settings.clone())?, &Defaults::default())?;
        ensure!(made.is_some(), "{} has no instrumented unit: build it with trodden", program.display());
        Ok(output)
    };
    settings.iter().enumerate().map(make).collect()
}

/// Runs the copies; gives their counts as one profile, where they differ, and how the first ended.
fn count<S: Partition>(
    record: &Record,
    program: &Path,
    (runner, work): (&Runner, &Path),
    (share, copies): (&S, usize),
) -> Result<(Profile, Vec<String>, CopyOutcome)> {
    let (copies, _) = run_to_ends(copies, work, runner)?;
    let mut differences = outcomes(&copies);
    let run = run_of(record, &copies);
    let profiles = copies.iter().map(|copy| copy.profile.clone()).collect();
    let (mut images, different) = share.merge(profiles, work)?;
    // The copies' own files are gone with their folder.
    for image in images.iter_mut().filter(|image| Path::new(&image.path).starts_with(work)) {
        image.path = program.display().to_string();
    }
    differences.extend(different);
    let mut profile = Profile { run, images, sampling: None };
    profile.run.diverged = differences.len() as u64;
    Ok((profile, differences, copies[0].outcome.clone()))
}
