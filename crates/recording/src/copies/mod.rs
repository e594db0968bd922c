//! Records a run with several copies of a program. Each copy runs on the same input and counts some of the paths, and the counts are
//! merged.
//!
//! [`weights`] finds the path frequencies that guide the division, if necessary by running the program once. [`make`] divides the paths and
//! builds the copies from shared [`objects`]; [`heap`] makes their heaps start at the same address. An engine of `trodden_launch` runs a
//! [`worker`] for each copy. [`trodden_profile::copies`] merges the counts and checks that the copies behaved alike. [`shared`] is a
//! variant for dividing complete functions ([`segments`], [`iterations`], [`iteration_paths`]) or sets of paths ([`watched`],
//! [`interesting`]). [`distribute`] makes copies that users run, and [`determinism`] checks whether a program is deterministic.

mod determinism;
pub mod distribute;
mod folders;
mod heap;
mod interesting;
mod iteration_paths;
mod iterations;
mod launching;
pub mod make;
mod objects;
mod outcomes;
mod path_sets;
mod preparation;
mod segments;
mod shared;
mod spec;
mod units;
mod watched;
mod weights;
mod worker;

pub use determinism::{DeterminismCheck, check_repeatable};
pub use preparation::CopyInput;
pub use units::read_units;
pub use worker::run_worker;

use crate::{RecordedCommand, RecordingContext, deliver_profile, run_metadata};
use anyhow::{Context, Result};
use launching::{
    CopyRun, CopyRunner, PRISTINE_FOLDER, build_job_spec, launch_copies, read_results, resolve_program, run_all_copies, sequential_engine,
};
use make::{CopiedProgram, PathPartition};
use outcomes::{add_first_copy_output, describe_outcome_differences, report_differences, report_interrupted_copies, shell_exit_status};
use preparation::{CopiesFailedError, WorkFolder};
use spec::{CopyJobSpec, CopyOutcome, copy_file};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use trodden_driver::DriverContext;
use trodden_driver::recipe::OsText;
use trodden_flow::part::Measure;
use trodden_launch::{LaunchEngine, StopFlag};
use trodden_partition::{PartitionStrategy, ProfitableProcedures};
use trodden_profile::copies::{CopyMeasurements, counted_probe_hits, edge_differences, edges, merge_copies, path_differences};
use trodden_profile::{CollectedProfile, CopyDivergence, ProcessEnding, Profile, Run};
use trodden_unit::{IterationSet, SegmentSet};

/// The environment in which copies are made and run.
#[derive(Clone, Copy, Debug)]
pub struct CopyContext<'a> {
    /// Compilers, the plugin and the unit cache.
    pub driver: &'a DriverContext,
    /// Folders and stores.
    pub recording: &'a RecordingContext,
}

/// The counting work that is divided among copies.
#[derive(Clone, Debug)]
pub enum DividedCounts {
    /// Counts of paths: of all paths, or only of the watched, interesting or unknown paths if the program counts only these.
    Paths,
    /// Counts of edges. Each copy counts some edges of a set that determines the counts of all edges.
    Edges,
    /// Counts of segments across calls.
    Segments(SegmentSet),
    /// Recordings of path sequences across loop iterations. Each copy records some functions.
    Iterations,
    /// Counts of paths over iterations, divided by the ends at which they are counted.
    IterationPaths(IterationSet),
}

/// Options for making and running copies.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Number of copies.
    pub copies: usize,
    /// What is divided among the copies.
    pub shared: DividedCounts,
    /// Strategy for dividing paths.
    pub strategy: PartitionStrategy,
    /// Strategy p3 only: which functions are divided, and into how many parts.
    pub profitable: ProfitableProcedures,
    /// Maximum number of probes per copy, as an alternative to a strategy.
    pub max_probes: Option<usize>,
    /// Which probe executions ("hits") the division minimises.
    pub hits: Measure,
    /// Name of the profile that guides the division: a file, a run or a suite.
    pub weights: Option<String>,
    /// True to estimate frequencies if the run store has no run of this build, instead of running the program once.
    pub no_first_run: bool,
    /// The engine that runs the copies.
    pub engine: LaunchEngine,
    /// Maximum address space of each local copy, in bytes.
    pub memory: Option<u64>,
    /// True to run each copy in a private clone of the working folder.
    pub private_folders: bool,
    /// True if copies may print different output.
    pub ignore_output: bool,
    /// True to also run the original program and a program that counts nothing, one after the other, for comparison.
    pub baseline: bool,
    /// True to make copies count how often their probes are executed.
    pub count_hits: bool,
    /// File to which the caller will write the costs. Recording fails early if this file cannot be written.
    pub costs: Option<PathBuf>,
    /// Folder in which the copies and their results are kept; `None` for a temporary folder.
    pub work: Option<PathBuf>,
}

/// Arguments of [`run`].
#[derive(Clone, Debug)]
pub struct CopyJob {
    /// The command to record, and the destination of its profile.
    pub what: RecordedCommand,
    /// How to make and run the copies.
    pub options: CopyOptions,
}

/// The result of a recording with copies. Its profile is already stored.
pub struct RecordedCopies {
    work: WorkFolder,
    outcome: CopyOutcome,
    /// Descriptions of how copies differed.
    pub differences: Vec<String>,
    /// Times and executed probes of the copies; `None` if the copies divide functions or sets of paths.
    pub measurements: Option<CopyMeasurements>,
    /// The user's working folder, if copies ran in private folders.
    home: Option<PathBuf>,
}

impl RecordedCopies {
    fn new(
        job: &CopyJob,
        work: WorkFolder,
        outcome: CopyOutcome,
        differences: Vec<String>,
        measurements: Option<CopyMeasurements>,
        context: CopyContext,
    ) -> RecordedCopies {
        let home = job.options.private_folders.then(|| context.recording.directory.clone());
        RecordedCopies { work, outcome, differences, measurements, home }
    }

    /// Returns the standard output and the standard error output of the first copy.
    pub fn output(&self) -> Result<[Vec<u8>; 2]> {
        let read = |name: &str| fs::read(copy_file(self.work.path(), name, 0));
        Ok([read("out")?, read("err")?])
    }

    /// Copies the changes that the first copy made in its private folder to the user's working folder.
    pub fn copy_changes_back(&self) -> Result<()> {
        let work = self.work.path();
        self.home.as_ref().map_or(Ok(()), |home| folders::copy_changes_back(&copy_file(work, "made", 0), home, &work.join(PRISTINE_FOLDER)))
    }

    /// Returns the program's exit status. If the copies differed, warns and returns 1.
    pub fn exit_code(&self) -> ExitCode {
        if self.differences.is_empty() {
            return ExitCode::from(shell_exit_status(&self.outcome));
        }
        report_differences(&self.differences);
        ExitCode::FAILURE
    }
}

/// Records a run with several copies. `input` reads the standard input for all of them, and is called only after all checks have passed.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<RecordedCopies> {
    match &job.options.shared {
        DividedCounts::Segments(set) => return segments::run(job, set, context, input),
        DividedCounts::Iterations => return iterations::run(job, context, input),
        DividedCounts::IterationPaths(set) => return iteration_paths::run(job, set, context, input),
        DividedCounts::Paths | DividedCounts::Edges => {}
    }
    let file = resolve_program(&job.what.command[0], context)?;
    if matches!(job.options.shared, DividedCounts::Paths) {
        if watched::watches_paths(&file, context) {
            return watched::run(job, context, input);
        }
        if interesting::counts_interesting_paths(&file, context) {
            return interesting::run(job, context, input);
        }
    }
    let program = CopiedProgram::read(&file, context.recording.units.as_ref())?;
    preparation::check_destinations(job)?;
    let input = input()?;
    // Up to here, a signal ends the process, even while it reads input. From here on, signals set `stop`.
    trodden_launch::temporary::disable_removal_on_signals();
    let stop = StopFlag::new()?;
    let mut work = WorkFolder::new(job, context.recording)?;
    let runner = CopyRunner { engine: job.options.engine.clone(), stop: &stop, context };
    let spec = build_job_spec(&job.what.command, Vec::new(), work.path(), job.options.private_folders, input, context);
    let counted = spec.and_then(|spec| count_with_copies(job, &runner, program, spec, work.path()));
    let CountedCopies { profile, measurements, differences, outcome } = counted.map_err(|error| work.finish_with_error(error, &stop))?;
    drop(stop);
    // The profile is stored first, because later steps may fail, such as writing output to a closed pipe.
    deliver_profile(&CollectedProfile { profile, problems: Vec::new() }, &job.what.destination, context.recording)?;
    Ok(RecordedCopies::new(job, work, outcome, differences, Some(measurements), context))
}

struct CountedCopies {
    profile: Profile,
    measurements: CopyMeasurements,
    differences: Vec<String>,
    /// The first copy's outcome.
    outcome: CopyOutcome,
}

fn count_with_copies(
    job: &CopyJob,
    runner: &CopyRunner,
    program: CopiedProgram,
    mut spec: CopyJobSpec,
    work: &Path,
) -> Result<CountedCopies> {
    let options = &job.options;
    spec.ignore_output = options.ignore_output;
    let weights = weights::find_frequencies(job, &program, &spec, work, runner)?;
    let partition = &PathPartition::new(program, options, weights.as_ref())?;
    let mut programs: Vec<PathBuf> = partition.build_copies(work, options.baseline, None, runner.stop, runner.context)?;
    heap::extend_segments_to_align_heaps(&programs, Path::new(&partition.program.path))?;
    programs.extend(options.baseline.then(|| PathBuf::from(&partition.program.path)));
    spec.programs = programs.iter().map(|p| OsText::from(p.as_os_str())).collect();
    let _job = spec.write(work)?;
    run_copies(job, runner, partition, work).context(CopiesFailedError)
}

fn run_copies(job: &CopyJob, runner: &CopyRunner, partition: &PathPartition, work: &Path) -> Result<CountedCopies> {
    let options = &job.options;
    let (copies, attempts) = run_all_copies(partition.copies.len(), work, runner)?;
    let mut differences = describe_outcome_differences(&copies);
    let profiles: Vec<Profile> = copies.iter().map(|c| c.profile.clone()).collect();
    let merged = merge_copies(&partition.program, combine_run_metadata(job, &copies, runner.context), &profiles)
        .map_err(|error| add_first_copy_output(error, &copies[0], work))?;
    differences.extend(merged.divergences.iter().map(CopyDivergence::to_string));
    report_interrupted_copies(&merged, copies[0].outcome.ending);
    if merged.profile.run.interrupted == 0 {
        let missing = merged.silent.iter().filter(|copy| partition.expects_counts(**copy));
        differences.extend(missing.map(|copy| format!("copy {copy} counted nothing, unlike the run by which the paths were divided")));
    } else {
        // A signal interrupts each copy at a different point, so output may differ although the same signal ended all copies.
        differences.clear();
    }
    let mut measurements = collect_measurements(partition, &merged.profile, &copies, attempts, options)?;
    measurements.confirmed = merged.confirmed;
    let is_interrupted = !merged.interrupted.is_empty();
    let mut profile = merged.into_profile();
    if options.baseline {
        let found = run_baseline(work, options, &profile, runner, &mut measurements)?;
        // If a signal interrupted the program, paths that it left unfinished may differ.
        if matches!(copies[0].outcome.ending, ProcessEnding::Signal(_)) || is_interrupted {
            found
                .iter()
                .for_each(|at| log::info!("the comparison run, which counts all paths, was ended by a signal as well. It differs: {at}"));
        } else {
            differences.extend(found.into_iter().map(|at| format!("{at} in the program that counts all paths")));
        }
    }
    profile.run.diverged = differences.len() as u64;
    if matches!(options.shared, DividedCounts::Edges) {
        profile.images.iter_mut().take(1).for_each(edges::set_edge_identities);
    }
    Ok(CountedCopies { profile, measurements, differences, outcome: copies[0].outcome.clone() })
}

fn collect_measurements(
    partition: &PathPartition,
    counted: &Profile,
    copies: &[CopyRun],
    attempts: Vec<u32>,
    options: &CopyOptions,
) -> Result<CopyMeasurements> {
    if copies.iter().any(|c| !c.times.fixed_addresses) {
        log::info!(
            "cannot turn off the randomisation of addresses (some containers forbid it). If the program's paths depend on addresses, its \
             copies may take different paths"
        );
    }
    let is_residual = partition.is_residual();
    Ok(CopyMeasurements {
        program: partition.program.path.clone(),
        edges: partition.program.edges,
        is_residual,
        plans: partition.copies.clone(),
        whole: partition.whole.clone(),
        procedures: if is_residual { Vec::new() } else { partition.measured_procedures(counted)? },
        confirmed: 0,
        times: copies.iter().map(|copy| copy.times.clone()).collect(),
        attempts,
        counted_hits: options.count_hits.then(|| copies.iter().map(|copy| counted_probe_hits(&copy.profile)).collect()),
        baseline: None,
    })
}

/// Runs the program that counts nothing and the program that counts all paths, one after the other on this machine. Returns how the
/// latter's profile differs from `merged`.
fn run_baseline(
    folder: &Path,
    options: &CopyOptions,
    merged: &Profile,
    runner: &CopyRunner,
    measurements: &mut CopyMeasurements,
) -> Result<Vec<String>> {
    let both = [options.copies, options.copies + 1];
    launch_copies(folder, &both, &CopyRunner { engine: sequential_engine(options.memory), stop: runner.stop, context: runner.context })?;
    let base = read_results(folder, &both, runner.context)?;
    measurements.baseline = Some([base[0].times.clone(), base[1].times.clone()]);
    Ok(match measurements.edges {
        true => edge_differences(merged, &base[1].profile)?,
        false => path_differences(merged, &base[1].profile),
    })
}

/// Returns metadata that describe the runs of all copies as one run.
fn combine_run_metadata(job: &CopyJob, copies: &[CopyRun], context: CopyContext) -> Run {
    let started = copies.iter().map(|c| c.times.started_ns).min().unwrap_or(0);
    let run = run_metadata(&job.what.command, Duration::from_nanos(started), copies[0].outcome.ending, context.recording);
    let slowest = copies.iter().map(|c| c.times.wall_ns).max().unwrap_or(0);
    Run { duration_ns: slowest, suite: job.what.destination.suite.clone(), ..run }
}
