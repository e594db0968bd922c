//! Copies of a program that count a part of its paths each, run on the same input, and their counts as one profile.
//!
//! 1. [`weights`]: by what to divide the counting, which may take a first run;
//! 2. [`make`]: it is divided, and the copies are made, of [`objects`] that they share, with their [`heap`] at one address;
//! 3. an engine of `trodden_launch` runs [`worker`]s, one for each copy;
//! 4. [`trodden_profile::copies`] adds their counts up; what they printed and how they ended must be the same;
//! 5. `trodden_analysis::copies`: what each copy cost.
//!
//! [`shared`] does the same for [`segments`] across calls, paths across [`iterations`], and paths that are [`watched`] for.
//!
//! [`distribute`] makes copies for users instead, who run them on inputs of their own; `trodden fleet` adds up what they report.
//!
//! [`determinism`] runs a program several times in the same way, to see whether it does the same each time.

mod before;
mod determinism;
pub mod distribute;
mod folders;
mod heap;
mod iterations;
mod launching;
pub mod make;
mod objects;
mod outcomes;
mod segments;
mod shared;
mod spec;
mod units;
mod watched;
mod weights;
mod worker;

pub use before::CopyInput;
pub use determinism::{Determinism, determinism};
pub use units::units;
pub use worker::work;

use crate::{RecordedCommand, Surroundings, circumstances, deliver};
use anyhow::{Context, Result};
use before::{Failed, WorkFolder};
use launching::{CopyRun, PRISTINE, Runner, launch, one_by_one, program, results, run_to_ends, spec};
use make::{CopiedProgram, PathPartition};
use outcomes::{explain, outcomes, report_differences, report_interrupted, status};
use spec::{CopyOutcome, Spec, file};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use trodden_driver::DriverContext;
use trodden_driver::recipe::SystemText;
use trodden_flow::part::Measure;
use trodden_launch::{Engine, LaunchStop};
use trodden_partition::{PartitionStrategy, ProfitableProcedures};
use trodden_profile::copies::{CopyMeasurements, counted_hits, differences, different_edges, edges, merge_copies};
use trodden_profile::{Collected, CopyDivergence, ProcessEnding, Profile, Run};
use trodden_unit::SegmentSet;

/// What copies are given of the process that asks for them.
#[derive(Clone, Copy, Debug)]
pub struct CopyContext<'a> {
    /// What makes their programs.
    pub driver: &'a DriverContext,
    /// What all recordings are given.
    pub around: &'a Surroundings,
}

/// What copies share the counting of.
#[derive(Clone, Debug)]
pub enum SharedCounting {
    /// Paths: all of them, or those that the program watches for.
    Paths,
    /// The edges from which the counts of all follow.
    Edges,
    /// Interprocedural segments, by whole functions.
    Segments(SegmentSet),
    /// Sequences of paths across iterations, by whole functions.
    Iterations,
}

/// How copies are made and run.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// How many.
    pub copies: usize,
    /// What they share the counting of.
    pub shared: SharedCounting,
    /// How the counting of paths is divided.
    pub strategy: PartitionStrategy,
    /// Which functions p3 divides, and how finely.
    pub profitable: ProfitableProcedures,
    /// Probes of a copy at most, in the place of a strategy.
    pub max_probes: Option<usize>,
    /// Which hits are to be few.
    pub hits: Measure,
    /// The name of a profile by which to divide: a file, a run or a suite.
    pub weights: Option<String>,
    /// Whether estimated frequencies do, if no run of the build is in the run store.
    pub no_first_run: bool,
    /// Who runs the copies.
    pub engine: Engine,
    /// Bound on the address space of each, in bytes, of runs on this machine.
    pub memory: Option<u64>,
    /// Whether each runs in a copy of the working folder.
    pub own_folders: bool,
    /// Whether what they print is not compared.
    pub ignore_output: bool,
    /// Whether the program itself and one without counting run as well, each alone.
    pub baseline: bool,
    /// Whether copies count the executions of their probes.
    pub count_hits: bool,
    /// A file that is written of what they cost, by the caller: it is checked before they run that it can be.
    pub costs: Option<PathBuf>,
    /// A folder for the copies and their results, which is kept.
    pub work: Option<PathBuf>,
}

/// A command that copies run.
#[derive(Clone, Debug)]
pub struct CopyJob {
    /// The command, and where its profile goes.
    pub what: RecordedCommand,
    /// How.
    pub options: CopyOptions,
}

/// What copies did, after their profile was stored.
pub struct CopiesRecorded {
    work: WorkFolder,
    outcome: CopyOutcome,
    /// Where they differ.
    pub differences: Vec<String>,
    /// What they took and executed; not known of copies that share by whole functions.
    pub measurements: Option<CopyMeasurements>,
    /// Where what the first one made in a folder of its own goes.
    home: Option<PathBuf>,
}

impl CopiesRecorded {
    fn new(
        job: &CopyJob,
        work: WorkFolder,
        outcome: CopyOutcome,
        differences: Vec<String>,
        measurements: Option<CopyMeasurements>,
        context: CopyContext,
    ) -> CopiesRecorded {
        let home = job.options.own_folders.then(|| context.around.directory.clone());
        CopiesRecorded { work, outcome, differences, measurements, home }
    }

    /// What the first copy printed, and what it printed to standard error.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn output(&self) -> Result<[Vec<u8>; 2]> {
        let read = |name: &str| fs::read(file(self.work.path(), name, 0));
        Ok([read("out")?, read("err")?])
    }

    /// Puts into the working folder what the first copy made in a folder of its own.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn bring_back(&self) -> Result<()> {
        let work = self.work.path();
        self.home.as_ref().map_or(Ok(()), |home| folders::bring_back(&file(work, "made", 0), home, &work.join(PRISTINE)))
    }

    /// The program's exit status, or 1 and a warning of where copies differ.
    pub fn exit_code(&self) -> ExitCode {
        if self.differences.is_empty() {
            return ExitCode::from(status(&self.outcome));
        }
        report_differences(&self.differences);
        ExitCode::FAILURE
    }
}

/// Records a run by several copies. What they get as standard input is read by `input`, when all else is known to be in order.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<CopiesRecorded> {
    match &job.options.shared {
        SharedCounting::Segments(set) => return segments::run(job, set, context, input),
        SharedCounting::Iterations => return iterations::run(job, context, input),
        SharedCounting::Paths | SharedCounting::Edges => {}
    }
    let file = program(&job.what.command[0], context)?;
    if matches!(job.options.shared, SharedCounting::Paths) && watched::is_watching(&file, context) {
        return watched::run(job, context, input);
    }
    let program = CopiedProgram::read(&file, context.around.units.as_ref())?;
    before::check_destinations(job)?;
    let input = input()?;
    // Only now: reading and printing are what signals have to end, everything between ends itself.
    trodden_launch::temporary::take_signals();
    let stop = LaunchStop::new()?;
    let mut work = WorkFolder::new(job, context.around)?;
    let runner = Runner { engine: job.options.engine.clone(), stop: &stop, context };
    let spec = spec(&job.what.command, Vec::new(), work.path(), job.options.own_folders, input, context);
    let counted = spec.and_then(|spec| count(job, &runner, program, spec, work.path()));
    let Counted { profile, measurements, differences, outcome } = counted.map_err(|error| work.end_with(error, &stop))?;
    drop(stop);
    // First what took long to find out: what the caller does next may fail, because the output has no reader any more.
    deliver(&Collected { profile, problems: Vec::new() }, &job.what.destination, context.around)?;
    Ok(CopiesRecorded::new(job, work, outcome, differences, Some(measurements), context))
}

/// What all copies together did.
struct Counted {
    profile: Profile,
    measurements: CopyMeasurements,
    /// Where they differ.
    differences: Vec<String>,
    /// How the first of them ended.
    outcome: CopyOutcome,
}

/// Makes the copies, and runs them.
fn count(job: &CopyJob, runner: &Runner, program: CopiedProgram, mut spec: Spec, work: &Path) -> Result<Counted> {
    let options = &job.options;
    spec.ignore_output = options.ignore_output;
    let weights = weights::find(job, &program, &spec, work, runner)?;
    let partition = &PathPartition::new(program, options, weights.as_ref())?;
    let mut programs: Vec<PathBuf> = partition.make(work, options.baseline, None, runner.stop, runner.context)?;
    heap::align(&programs, Path::new(&partition.program.path))?;
    programs.extend(options.baseline.then(|| PathBuf::from(&partition.program.path)));
    spec.programs = programs.iter().map(|p| SystemText::from(p.as_os_str())).collect();
    let _job = spec.write(work)?;
    run_copies(job, runner, partition, work).context(Failed)
}

fn run_copies(job: &CopyJob, runner: &Runner, partition: &PathPartition, work: &Path) -> Result<Counted> {
    let options = &job.options;
    let (copies, attempts) = run_to_ends(partition.copies.len(), work, runner)?;
    let mut differences = outcomes(&copies);
    let profiles: Vec<Profile> = copies.iter().map(|c| c.profile.clone()).collect();
    let merged = merge_copies(&partition.program, run_of(job, &copies, runner.context), &profiles)
        .map_err(|error| explain(error, &copies[0], work))?;
    differences.extend(merged.divergences.iter().map(CopyDivergence::to_string));
    report_interrupted(&merged, copies[0].outcome.ending);
    if merged.profile.run.interrupted == 0 {
        let missing = merged.silent.iter().filter(|copy| partition.expects_counts(**copy));
        differences.extend(missing.map(|copy| format!("copy {copy} counted nothing, unlike the run by which the counting was divided")));
    } else {
        // What copies print until a signal comes is another matter each time, too; they ended alike.
        differences.clear();
    }
    let mut measurements = measure(partition, &merged.profile, &copies, attempts, options)?;
    measurements.confirmed = merged.confirmed;
    let is_interrupted = !merged.interrupted.is_empty();
    let mut profile = merged.into_profile();
    if options.baseline {
        let found = baseline(work, options, &profile, runner, &mut measurements)?;
        // What is known of the paths that a signal interrupted may differ.
        if matches!(copies[0].outcome.ending, ProcessEnding::Signal(_)) || is_interrupted {
            found.iter().for_each(|at| log::info!("{at} in one program that counts all, which ended like that as well"));
        } else {
            differences.extend(found.into_iter().map(|at| format!("{at} in one program that counts all")));
        }
    }
    profile.run.diverged = differences.len() as u64;
    if matches!(options.shared, SharedCounting::Edges) {
        profile.images.iter_mut().take(1).for_each(edges::rename);
    }
    Ok(Counted { profile, measurements, differences, outcome: copies[0].outcome.clone() })
}

/// What copies took, and executed by what all of them counted.
fn measure(
    partition: &PathPartition,
    counted: &Profile,
    copies: &[CopyRun],
    attempts: Vec<u32>,
    options: &CopyOptions,
) -> Result<CopyMeasurements> {
    if copies.iter().any(|c| !c.times.fixed_addresses) {
        log::info!("addresses of memory are random here (a container may forbid to change that): programs that go by addresses may differ");
    }
    let is_residual = partition.is_residual();
    Ok(CopyMeasurements {
        program: partition.program.path.clone(),
        edges: partition.program.edges,
        is_residual,
        plans: partition.copies.clone(),
        whole: partition.whole.clone(),
        procedures: if is_residual { Vec::new() } else { partition.measured(counted)? },
        confirmed: 0,
        times: copies.iter().map(|copy| copy.times.clone()).collect(),
        attempts,
        counted_hits: options.count_hits.then(|| copies.iter().map(|copy| counted_hits(&copy.profile)).collect()),
        baseline: None,
    })
}

/// Runs the program without counting and with all of it, alone and here; gives where its profile is not the copies'.
fn baseline(
    folder: &Path,
    options: &CopyOptions,
    merged: &Profile,
    runner: &Runner,
    measurements: &mut CopyMeasurements,
) -> Result<Vec<String>> {
    let both = [options.copies, options.copies + 1];
    launch(folder, &both, &Runner { engine: one_by_one(options.memory), stop: runner.stop, context: runner.context })?;
    let base = results(folder, &both, runner.context)?;
    measurements.baseline = Some([base[0].times.clone(), base[1].times.clone()]);
    Ok(match measurements.edges {
        true => different_edges(merged, &base[1].profile)?,
        false => differences(merged, &base[1].profile),
    })
}

/// The run that copies are together.
fn run_of(job: &CopyJob, copies: &[CopyRun], context: CopyContext) -> Run {
    let started = copies.iter().map(|c| c.times.started_ns).min().unwrap_or(0);
    let run = circumstances(&job.what.command, Duration::from_nanos(started), copies[0].outcome.ending, context.around);
    let slowest = copies.iter().map(|c| c.times.wall_ns).max().unwrap_or(0);
    Run { duration_ns: slowest, suite: job.what.destination.suite.clone(), ..run }
}
