//! `trodden record -- COMMAND`: runs a program and stores a profile with its counts.
//!
//! Programs count in mapped files, in a folder that is created for the run. All processes of the command share one file per image, so the
//! counts survive however the program ends. The command keeps its standard streams, receives the signals that are sent to this process, and
//! determines the exit status. If no profile can be stored, a message says why.

use crate::bursts::{self, BurstFiles, BurstThread};
use crate::runs::format_causes;
use crate::{
    BurstSchedule, DeliveredProfile, PROGRAM_VARIABLE, ProfileDestination, RecordedCommand, RecordingContext, RunFolder, command,
    create_run_folder, deliver_profile, exit_code_of_recording, is_mapped_by_process, new_run_metadata, output_pattern, process_ending,
    run_metadata, warn_nothing_counted,
};
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trodden_launch::process::{cannot_run_error, exit_code, run_forwarding_signals};
use trodden_profile::{CollectedProfile, Profile, Run, SampledRun, Sampling, UnitProfile, collect, raw_files};
use trodden_text::words::{plural, quote_for_shell};
use trodden_unit::InstrumentedImage;
use trodden_wire::{SWITCH_ENVIRONMENT_VARIABLE, SWITCH_ON_VALUE};

/// Records a command and all its processes as one run. Returns the command's exit status. With `must_sample`, warns if none of the programs
/// was built with `--sample`.
pub fn run(what: &RecordedCommand, bursts: BurstSchedule, must_sample: bool, context: &RecordingContext) -> Result<ExitCode> {
    let folder = create_run_folder(&what.destination, context)?;
    // This name pattern contains no process ID, so all processes share one file per image.
    let mut counted = run_and_count(&what.command, folder.path(), "%m.raw", bursts, context)?;
    counted.run.suite = what.destination.suite.clone();
    counted.run.test.clone_from(&context.test);
    let status = counted.status;
    let delivery = folder.check_exists().and_then(|()| store_profile(what, must_sample, counted, folder.path(), context));
    let is_whole = report_delivery(delivery, folder);
    Ok(exit_code_of_recording(status, is_whole))
}

/// A command, such as cargo, that runs programs through a runner. The runner passes the output pattern to the programs.
#[derive(Debug)]
pub struct RunnerCommand {
    /// The command with its arguments and environment.
    pub command: Command,
    /// The command as the user typed it. Lists of runs show it.
    pub typed: Vec<OsString>,
    /// The environment variable in which the runner expects the output pattern.
    pub output_variable: &'static str,
    /// The folder with copies of images that are deleted after they ran. The file name of each copy is the image's identity.
    pub images: PathBuf,
    /// Where the profile is written.
    pub destination: ProfileDestination,
}

/// Records all programs that a command runs through its runner as one run. Returns the command's exit status, and whether a profile was
/// stored. Fails if the command cannot be run, or the destination cannot be written.
pub fn run_through_runner(what: RunnerCommand, bursts: BurstSchedule, context: &RecordingContext) -> Result<(ExitCode, bool)> {
    let folder = create_run_folder(&what.destination, context)?;
    let mut command = what.command;
    command.env(what.output_variable, output_pattern(folder.path(), "%m.raw"));
    let mut counted = run_and_count_command(command, &what.typed, folder.path(), bursts, context)?;
    counted.run.suite.clone_from(&what.destination.suite);
    let status = counted.status;
    folder.check_exists()?;
    if raw_files(folder.path())?.is_empty() {
        log::info!("nothing was recorded, because no instrumented program ran");
        return Ok((exit_code(status), false));
    }
    let delivery = counted.collect(folder.path(), context).and_then(|mut collected| {
        replace_missing_images(&mut collected.profile, &what.images);
        deliver_profile(&collected, &what.destination, context)
    });
    let is_recorded = delivery.is_ok();
    let is_whole = report_delivery(delivery, folder);
    Ok((exit_code_of_recording(status, is_whole), is_recorded))
}

/// If an image no longer exists, makes the profile refer to its copy.
fn replace_missing_images(profile: &mut Profile, copies: &Path) {
    for image in profile.images.iter_mut().filter(|image| !Path::new(&image.path).exists()) {
        let copy = copies.join(image.identity.to_string());
        let Some(found) = fs::read(&copy).ok().and_then(|bytes| InstrumentedImage::read(&bytes).ok()) else { continue };
        image.path = copy.display().to_string();
        image.build_id = found.build_id;
    }
}

/// Reports the problems of a run's profile. Keeps the raw files if they contain more than the profile. Returns true if the profile is
/// complete.
fn report_delivery(delivery: Result<DeliveredProfile>, folder: RunFolder) -> bool {
    let delivered = match delivery {
        Ok(DeliveredProfile { problems: 0, .. }) => return true,
        Ok(delivered) => delivered,
        Err(error) if !has_counts(folder.path()) => {
            log::warn!("could not store the profile of this run: {}", format_causes(&error));
            return false;
        }
        Err(error) => {
            let kept = folder.keep();
            log::warn!(
                "could not store the profile of this run: {1}. The raw counts are kept in {0}; to store them, run `trodden import {2}`",
                kept.display(),
                format_causes(&error),
                quote_for_shell(&kept.to_string_lossy())
            );
            return false;
        }
    };
    if delivered.all_marked {
        log::warn!("the profile of this run lacks counts, so it is marked as incomplete");
    } else {
        let kept = folder.keep();
        log::warn!(
            "the profile of this run is incomplete ({}, listed above). The raw counts are kept in {1}; to import them again, run \
             `trodden import {2}`",
            plural(delivered.problems as u128, "problem", "problems"),
            kept.display(),
            quote_for_shell(&kept.to_string_lossy())
        );
    }
    false
}

/// Returns true if a folder contains raw files that are not empty.
fn has_counts(folder: &Path) -> bool {
    raw_files(folder).is_ok_and(|files| files.iter().any(|file| fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0)))
}

/// Runs a program that writes raw files to a folder and returns its profile. This is a self-test for `trodden doctor`. Fails if the program
/// cannot be run or fails, or its counts have problems.
pub fn record_trial(program: &Path, folder: &Path, context: &RecordingContext) -> Result<Profile> {
    let bursts = BurstSchedule { burst: Duration::from_millis(1), period: Duration::from_millis(10) };
    let counted = run_and_count(&[program.into()], folder, "%m.raw", bursts, context)?;
    anyhow::ensure!(counted.status.success(), "the program that was run failed with {}", counted.status);
    let collected = counted.collect(folder, context)?;
    match collected.problems.first() {
        Some(problem) => Err(anyhow::anyhow!("{problem}")),
        None => Ok(collected.profile),
    }
}

/// Runs shell commands in order and returns a profile of all of them. [`PROGRAM_VARIABLE`] tells the commands the path of `program`. Fails
/// if a command cannot be run or fails, nothing was counted, or counts are lost.
pub fn train(commands: &[String], program: &Path, context: &RecordingContext) -> Result<Profile> {
    let folder = context.temporary_folder("trodden-train-")?;
    let bursts = BurstSchedule { burst: Duration::from_micros(100), period: Duration::from_millis(5) };
    let mut last = None;
    for line in commands {
        let arguments = ["sh".into(), "-c".into(), line.into()];
        let counted =
            run_and_count_with(&arguments, &[(PROGRAM_VARIABLE, program.as_os_str())], (folder.path(), "%m.raw"), bursts, context)?;
        anyhow::ensure!(counted.status.success(), "the training command `{line}` failed with {}", counted.status);
        last = Some(counted);
    }
    anyhow::ensure!(
        !raw_files(folder.path())?.is_empty(),
        "the training run counted nothing. Check that the training command runs the program that is being built"
    );
    let collected = last.context("expected a training command")?.collect(folder.path(), context)?;
    match collected.problems.iter().find(|p| p.loses_counts()) {
        Some(problem) => Err(anyhow::anyhow!("{problem}")),
        None => Ok(collected.profile),
    }
}

struct CountedRun {
    run: Run,
    status: ExitStatus,
    /// `None` if no program that ran was built with `--sample`.
    sampling: Option<SampledRun>,
}

impl CountedRun {
    fn collect(self, folder: &Path, context: &RecordingContext) -> Result<CollectedProfile> {
        let files = raw_files(folder)?;
        let mut collected = collect(files, self.run, context.units.as_ref());
        collected.profile.sampling = self.sampling.map(|s| Sampling::Bursts(s.estimate_counts(&collected.profile)));
        Ok(collected)
    }
}

/// Processes that end within this time are not reported as still running.
const EXIT_GRACE_PERIOD: Duration = Duration::from_millis(50);

/// Runs a command that writes raw files, named by the pattern `names`, to a folder.
fn run_and_count(
    arguments: &[OsString],
    folder: &Path,
    names: &str,
    bursts: BurstSchedule,
    context: &RecordingContext,
) -> Result<CountedRun> {
    run_and_count_with(arguments, &[], (folder, names), bursts, context)
}

/// Like [`run_and_count`], but sets additional environment variables.
fn run_and_count_with(
    arguments: &[OsString],
    variables: &[(&str, &OsStr)],
    (folder, names): (&Path, &str),
    bursts: BurstSchedule,
    context: &RecordingContext,
) -> Result<CountedRun> {
    let mut command = command(arguments, folder, names, context);
    command.envs(variables.iter().copied());
    run_and_count_command(command, arguments, folder, bursts, context)
}

/// Runs a command whose environment already tells it to write raw files to a folder.
fn run_and_count_command(
    mut command: Command,
    arguments: &[OsString],
    folder: &Path,
    bursts: BurstSchedule,
    context: &RecordingContext,
) -> Result<CountedRun> {
    if bursts.burst == bursts.period {
        // Without pauses, even the program's first paths must be counted. The recorder could switch counting on only after it has found the
        // raw file.
        command.env(SWITCH_ENVIRONMENT_VARIABLE, SWITCH_ON_VALUE);
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let bursting = BurstThread::start(BurstFiles::from_folder(folder), bursts)?;
    let status = run_forwarding_signals(&mut command);
    let sampling = bursting.stop();
    let status = status.map_err(|error| cannot_run_error(&arguments[0], error))?;
    let run = Run { duration_ns: clock.elapsed().as_nanos() as u64, ..run_metadata(arguments, started, process_ending(status), context) };
    warn_of_running_processes(arguments, folder);
    Ok(CountedRun { run, status, sampling })
}

/// Warns if a process that the command started is still counting.
fn warn_of_running_processes(arguments: &[OsString], folder: &Path) {
    let is_used = || trodden_profile::raw_files(folder).unwrap_or_default().iter().any(|file| is_mapped_by_process(file));
    // Processes get some time to end before they are reported.
    if is_used() && {
        std::thread::sleep(EXIT_GRACE_PERIOD);
        is_used()
    } {
        log::warn!(
            "`{}` has ended, but a process that it started is still running, and its further counts will be missing from the profile. To \
             include them, record a command that waits for the process, or set TRODDEN_OUTPUT and run `trodden import` at the end",
            arguments[0].display()
        );
    }
}

fn store_profile(
    what: &RecordedCommand,
    must_sample: bool,
    counted: CountedRun,
    folder: &Path,
    context: &RecordingContext,
) -> Result<DeliveredProfile> {
    if raw_files(folder)?.is_empty() {
        warn_nothing_counted(&what.command[0]);
        return Ok(DeliveredProfile::default());
    }
    match (&counted.sampling, must_sample) {
        (Some(sampling), _) => bursts::log_counting_fraction(sampling),
        (None, true) => log::warn!("nothing was sampled, because no program that ran was built with --sample. All executions were counted"),
        (None, false) => {}
    }
    deliver_profile(&counted.collect(folder, context)?, &what.destination, context)
}

/// Stores a profile from raw files that programs wrote without `trodden record`. Fails if a file cannot be read, nothing can be decoded, or
/// some counts are lost.
pub fn collect_files(given: &[PathBuf], destination: &ProfileDestination, context: &RecordingContext) -> Result<()> {
    let mut files = Vec::new();
    for path in given {
        match path.is_dir() {
            true => files.extend(raw_files(path)?),
            false => files.push(path.clone()),
        }
    }
    anyhow::ensure!(!files.is_empty(), "the given folders contain no files of raw counts (*.raw)");
    let run = Run { suite: destination.suite.clone(), ..new_run_metadata() };
    let collected = collect(files, run, context.units.as_ref());
    let has_bursts = |unit: &UnitProfile| {
        unit.map.experiment.is_sampled() && unit.map.functions.iter().any(|function| unit.counts_of(function).next().is_some())
    };
    if let Some(image) = collected.profile.images.iter().find(|image| image.units.iter().any(has_bursts)) {
        anyhow::bail!(
            "{} was built with --sample, but its raw file does not say which part of the run the counts cover. Record with `trodden \
             record` or, if the program is running, `trodden record --attach`",
            image.path
        );
    }
    deliver_profile(&collected, destination, context)?.check_nothing_was_lost()
}
