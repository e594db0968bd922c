//! `trodden record -- COMMAND`: runs a program and makes a stored profile of what it counted.
//!
//! Counts are in files that the program maps while it runs (one per image, shared by all processes of the command), in
//! a folder made for the run; so they are there however the program ends. The command keeps its standard streams, gets
//! the signals that are sent to us, and its exit status becomes ours. A profile that cannot be made is reported, not
//! passed on as a status: the command's own is.

use crate::bursts::{self, BurstFiles, Bursting};
use crate::runs::reasons;
use crate::{
    Bursts, Destination, Lacking, PROGRAM_VARIABLE, RecordedCommand, RunFolder, Surroundings, circumstances, command, deliver, ending,
    exit_code_with, is_in_use, nothing_counted, one_run, run_folder,
};
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trodden_launch::process::{not_run, wait_forwarding};
use trodden_profile::{Collected, Profile, Run, Sampled, Sampling, UnitProfile, collect, raw_files};
use trodden_text::words::{plural, shell_word};
use trodden_wire::{SWITCH_IS_ON, SWITCH_VARIABLE};

/// Records a command as one run, all its processes together; gives the command's exit status. `must_sample`: something that runs should be
/// of the sample tier.
///
/// # Errors
/// The command cannot be started, or there is no place for its counts.
pub fn run(what: &RecordedCommand, bursts: Bursts, must_sample: bool, around: &Surroundings) -> Result<ExitCode> {
    let folder = run_folder(&what.destination, around)?;
    // Without a process number all processes of one image share a file.
    let mut counted = count(&what.command, folder.path(), "%m.raw", bursts, around)?;
    counted.run.suite = what.destination.suite.clone();
    counted.run.test.clone_from(&around.test);
    let status = counted.status;
    let kept = folder.check().and_then(|()| keep(what, must_sample, counted, folder.path(), around));
    let is_whole = report_kept(kept, folder);
    Ok(exit_code_with(status, is_whole))
}

/// Says what is wrong with a run's profile, and keeps raw files that may help; whether nothing is.
fn report_kept(kept: Result<Lacking>, folder: RunFolder) -> bool {
    let lacking = match kept {
        Ok(Lacking { problems: 0, .. }) => return true,
        Ok(lacking) => lacking,
        Err(error) if !has_counts(folder.path()) => {
            log::warn!("no profile of this run: {}", reasons(&error));
            return false;
        }
        Err(error) => {
            let kept = folder.keep();
            log::warn!(
                "no profile of this run: {1}; the raw counts are in {0} (`trodden import {2}`)",
                kept.display(),
                reasons(&error),
                shell_word(&kept.to_string_lossy())
            );
            return false;
        }
    };
    if lacking.all_marked {
        log::warn!("the profile of this run lacks counts that are lost, and says so");
    } else {
        let kept = folder.keep();
        log::warn!(
            "the profile of this run is incomplete ({}, named above); the raw counts are in {1} (`trodden import {2}`)",
            plural(lacking.problems as u128, "problem", "problems"),
            kept.display(),
            shell_word(&kept.to_string_lossy())
        );
    }
    false
}

/// Whether there are raw files that are not empty.
fn has_counts(folder: &Path) -> bool {
    raw_files(folder).is_ok_and(|files| files.iter().any(|file| fs::metadata(file).is_ok_and(|there| there.len() > 0)))
}

/// Runs a program in a folder and gives its profile, for `trodden doctor`.
///
/// # Errors
/// It cannot be run or fails, or nothing was counted.
pub fn trial(program: &Path, folder: &Path, around: &Surroundings) -> Result<Profile> {
    let bursts = Bursts { burst: Duration::from_millis(1), every: Duration::from_millis(10) };
    let counted = count(&[program.into()], folder, "%m.raw", bursts, around)?;
    anyhow::ensure!(counted.status.success(), "it ends with {}", counted.status);
    let collected = counted.collect(folder, around)?;
    match collected.problems.first() {
        Some(problem) => Err(anyhow::anyhow!("{problem}")),
        None => Ok(collected.profile),
    }
}

/// Runs commands of the shell one after the other, with the path of the program in a variable, and gives what they counted together.
///
/// # Errors
/// A command cannot be run or fails, or nothing was counted.
pub fn train(commands: &[String], program: &Path, around: &Surroundings) -> Result<Profile> {
    let folder = around.temporary_folder("trodden-train-")?;
    let bursts = Bursts { burst: Duration::from_micros(100), every: Duration::from_millis(5) };
    let mut last = None;
    for line in commands {
        let arguments = ["sh".into(), "-c".into(), line.into()];
        let counted = count_with(&arguments, &[(PROGRAM_VARIABLE, program.as_os_str())], (folder.path(), "%m.raw"), bursts, around)?;
        anyhow::ensure!(counted.status.success(), "the training `{line}` ends with {}", counted.status);
        last = Some(counted);
    }
    anyhow::ensure!(!raw_files(folder.path())?.is_empty(), "the training counted nothing: does it run the program that is built here?");
    let collected = last.context("there is no training")?.collect(folder.path(), around)?;
    match collected.problems.iter().find(|p| p.loses_counts()) {
        Some(problem) => Err(anyhow::anyhow!("{problem}")),
        None => Ok(collected.profile),
    }
}

/// A run that has ended.
struct Counted {
    run: Run,
    status: ExitStatus,
    /// If programs of the sample tier ran.
    sampling: Option<Sampled>,
}

impl Counted {
    /// Makes a profile of the raw files.
    fn collect(self, folder: &Path, around: &Surroundings) -> Result<Collected> {
        let files = raw_files(folder)?;
        let mut collected = collect(files, self.run, around.units.as_ref());
        collected.profile.sampling = self.sampling.map(|s| Sampling::Bursts(s.finish(&collected.profile)));
        Ok(collected)
    }
}

/// So long a process may take to end.
const ENDING: Duration = Duration::from_millis(50);

/// Runs a command whose counts go to files of these names in a folder.
fn count(arguments: &[OsString], folder: &Path, names: &str, bursts: Bursts, around: &Surroundings) -> Result<Counted> {
    count_with(arguments, &[], (folder, names), bursts, around)
}

/// The same with further variables.
fn count_with(
    arguments: &[OsString],
    variables: &[(&str, &OsStr)],
    (folder, names): (&Path, &str),
    bursts: Bursts,
    around: &Surroundings,
) -> Result<Counted> {
    let mut command = command(arguments, folder, names, around);
    command.envs(variables.iter().copied());
    if bursts.burst == bursts.every {
        // Nothing is to be missed before the recorder finds the program's raw file.
        command.env(SWITCH_VARIABLE, SWITCH_IS_ON);
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let bursting = Bursting::start(BurstFiles::from_folder(folder), bursts)?;
    let status = wait_forwarding(&mut command);
    let sampling = bursting.stop();
    let status = status.map_err(|error| not_run(&arguments[0], error))?;
    let run = Run { duration_ns: clock.elapsed().as_nanos() as u64, ..circumstances(arguments, started, ending(status), around) };
    warn_of_processes_that_go_on(arguments, folder);
    Ok(Counted { run, status, sampling })
}

/// Says so if a process that the command started still counts.
fn warn_of_processes_that_go_on(arguments: &[OsString], folder: &Path) {
    let is_used = || trodden_profile::raw_files(folder).unwrap_or_default().iter().any(|file| is_in_use(file));
    // One that is just ending is none.
    if is_used() && {
        std::thread::sleep(ENDING);
        is_used()
    } {
        log::info!(
            "warning: `{}` has ended, but a process that it started still runs: what it counts from now on is not in this profile (to \
                have it all, record a command that waits for it, or set TRODDEN_OUTPUT and use `trodden import` at the end)",
            arguments[0].display()
        );
    }
}

/// Makes the profile and puts it where it is wanted.
fn keep(what: &RecordedCommand, must_sample: bool, counted: Counted, folder: &Path, around: &Surroundings) -> Result<Lacking> {
    if raw_files(folder)?.is_empty() {
        nothing_counted(&what.command[0]);
        return Ok(Lacking::default());
    }
    match (&counted.sampling, must_sample) {
        (Some(sampling), _) => bursts::report(sampling),
        (None, true) => log::warn!("nothing was sampled: no program that ran was built with --sample, so all was counted in full"),
        (None, false) => {}
    }
    deliver(&counted.collect(folder, around)?, &what.destination, around)
}

/// Makes a profile of raw files that a program wrote without `trodden record`.
///
/// # Errors
/// A file cannot be found, nothing can be decoded, or some counts are lost.
pub fn collect_files(given: &[PathBuf], destination: &Destination, around: &Surroundings) -> Result<()> {
    let mut files = Vec::new();
    for path in given {
        match path.is_dir() {
            true => files.extend(raw_files(path)?),
            false => files.push(path.clone()),
        }
    }
    anyhow::ensure!(!files.is_empty(), "there are no raw files (their names end in .raw) in the folders given");
    let run = Run { suite: destination.suite.clone(), ..one_run() };
    let collected = collect(files, run, around.units.as_ref());
    let has_bursts = |unit: &UnitProfile| {
        unit.map.experiment.is_sampled() && unit.map.functions.iter().any(|function| unit.counts_of(function).next().is_some())
    };
    if let Some(image) = collected.profile.images.iter().find(|image| image.units.iter().any(has_bursts)) {
        anyhow::bail!(
            "{} was built with --sample: its raw file has counts of bursts, and not which part of the run they are; `trodden record \
             --attach` of the running program, and `trodden record`, make a profile that says so",
            image.path
        );
    }
    deliver(&collected, destination, around)?.check()
}
