//! `trodden record`: selects what kind of recording to make.

use crate::cli::{CopyDivision, PerfBranchSelection, RecordArguments};
use crate::commands::copies;
use crate::context::driver_context;
use crate::surroundings::recording_context;
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use trodden_console::arguments::engines::EngineChoice;
use trodden_console::arguments::laboratory::{CopyChoices, DivisionChoices, StreamChoices};
use trodden_driver::other_programs::find_program;
use trodden_profile::store::check_suite_name;
use trodden_recording::branches::{self, BranchRecording};
use trodden_recording::streams::record as streams;
use trodden_recording::{programs, record, sample};

pub fn run(job: &RecordArguments) -> Result<ExitCode> {
    // The recorded program may run for a long time, so errors in the name of the suite or the destination are reported before it starts.
    job.destination.suite.as_deref().map_or(Ok(()), check_suite_name)?;
    job.destination.check_output_is_no_folder()?;
    reject_options_without_effect(job)?;
    let (what, recording) = (job.to_recorded_command(), recording_context());
    if !job.attach.is_empty() {
        let (subjects, destination) = (job.attach.clone(), job.destination.to_profile_destination());
        sample::attach(&sample::SamplingJob { subjects, time: job.time, bursts: job.bursts.to_burst_schedule(), destination }, &recording)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(branches) = &job.branches {
        return branches::run(&what, &prepare_branch_recording(branches)?, &recording);
    }
    if job.copies.copies.is_some() {
        return copies::run(job);
    }
    let whole = job.stream.whole_program.then(|| job.stream.to_stream_options());
    if let Some(suite) = job.destination.suite.as_deref().filter(|_| is_each_program_stored_separately(job)) {
        return trodden_trace::command::run_in_tracer_process(|| programs::run(&what, suite, whole, &recording));
    }
    match (job.stream.last, whole) {
        (Some(last), _) => streams::record_last_paths(&what.command, last, &recording),
        (None, Some(options)) => streams::record_complete_streams(&what, options, &recording),
        (None, None) => record::run(&what, job.bursts.to_burst_schedule(), job.bursts.has_burst_options(), &recording),
    }
}

/// Rejects options that have no effect without another option. clap checks this, too, but not if that other option conflicts with a given
/// option.
fn reject_options_without_effect(job: &RecordArguments) -> Result<()> {
    let copies = &job.copies;
    let without_copies = copies.copies.is_none();
    let options = [
        ("--for", "--attach", job.time.is_some() && job.attach.is_empty()),
        ("--divide", "--copies", without_copies && copies.divide != CopyDivision::Paths),
        ("--weights", "--copies", without_copies && copies.weights.is_some()),
        ("--engine", "--copies", without_copies && copies.engine != EngineChoice::Local),
        ("--jobs", "--copies", without_copies && copies.jobs.is_some()),
        ("--own-folders", "--copies", without_copies && copies.own_folders),
        ("--ignore-output", "--copies", without_copies && copies.ignore_output),
        ("--work", "--copies", without_copies && copies.work.is_some()),
    ];
    let (division, streams) = (&copies.division, &job.stream.choices);
    let choices = [
        ("--copies", without_copies && (*division != DivisionChoices::default() || copies.choices != CopyChoices::default())),
        ("--whole-program", !job.stream.whole_program && *streams != StreamChoices::default()),
    ];
    if let Some((needed, _)) = choices.iter().find(|(_, is_idle)| *is_idle) {
        bail!("an option that was given to `trodden-lab with` requires {needed}. Add {needed}");
    }
    match options.iter().find(|(.., is_idle)| *is_idle) {
        Some((option, needed, _)) => {
            bail!(
                "{option} requires {needed}, which is missing or excluded by another option. Omit {option}, or add {needed} and omit the \
                 other option"
            )
        }
        None => Ok(()),
    }
}

/// Returns true if each program that the command starts is stored as a separate run.
fn is_each_program_stored_separately(job: &RecordArguments) -> bool {
    !(job.bursts.has_burst_options() || job.destination.no_store)
}

fn prepare_branch_recording(branches: &PerfBranchSelection) -> Result<BranchRecording> {
    let perf = find_program(driver_context(), "perf".as_ref())
        .context("perf is not installed. Install it (Debian: apt install linux-perf; Ubuntu: linux-tools-generic; Fedora: perf)")?;
    Ok(BranchRecording { kind: branches.kind, perf, event: branches.event.clone() })
}
