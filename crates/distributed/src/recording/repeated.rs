//! Checks that all runs have repeated the first run, because only then can their partial traces be merged.

use super::runs::{FirstRun, RunResult};
use anyhow::{Result, bail, ensure};
use nix::sys::signal::Signal;
use trodden_trace::FollowEnding;

/// Checks, after the first run, that the program can be run several times.
///
/// # Errors
/// The program has threads, reads or changes its own code, handles faults, or received signals whose timing would differ between runs.
pub fn check_first_run_is_repeatable(first: &FirstRun) -> Result<()> {
    let followed = &first.outcome.followed;
    let one = "Pass `--runs 1`, which watches every block in one run";
    ensure!(
        followed.threads == 1,
        "the program has {} threads (or vfork processes that share its memory), and their interleaving differs between runs. {one}",
        followed.threads
    );
    ensure!(
        followed.read_code.is_empty(),
        "the program reads its own code so often that recording jumps or breakpoints cannot be hidden from it. Pass `--collector \
         single-step`"
    );
    ensure!(followed.changed_code.is_empty(), "the program changes its own code, which prevents watching it in several runs. {one}");
    ensure!(followed.asynchronous_signals == 0, "the program received signals, which would arrive at different times in other runs. {one}");
    ensure!(
        followed.handled_faults == 0,
        "the program handles a fault (such as SIGSEGV) in a signal handler, and runs that watch only some blocks cannot see which \
         instruction faulted. {one}"
    );
    Ok(())
}

/// Signals that the program's own instructions raise, so that they occur at the same point in each run.
const FAULT_SIGNALS: [i32; 5] =
    [Signal::SIGSEGV as i32, Signal::SIGBUS as i32, Signal::SIGILL as i32, Signal::SIGFPE as i32, Signal::SIGTRAP as i32];

/// Checks that all runs behaved like the first run.
///
/// # Errors
/// A run diverged, or a fault ended it.
pub fn check_runs_ended_alike(results: &[RunResult], first: FollowEnding) -> Result<()> {
    for (number, result) in (1..).zip(results) {
        let ending = result.outcome.followed.ending;
        if let FollowEnding::Killed(signal) = ending
            && ending != first
            && FAULT_SIGNALS.contains(&signal)
        {
            bail!(
                "signal {signal} ended run {number} but not the first run, and only runs with equal behaviour can be merged. Pass `--runs \
                 1`"
            );
        }
        if let Some(divergence) = &result.outcome.divergence {
            bail!(
                "run {number} diverged from the first run at {divergence}, but only equal runs can be merged. If the first run created or \
                 removed files, pass `--fresh-folder`; if the program reads its own code, pass `--collector single-step`; otherwise pass \
                 `--runs 1`, which watches every block in one run"
            );
        }
    }
    Ok(())
}

/// Describes the runs that ended before the first run did.
pub fn describe_truncated_runs(results: &[RunResult], first: FollowEnding) -> Vec<String> {
    let ending = |r: &RunResult| match r.outcome.followed.ending {
        FollowEnding::Killed(signal) if first != FollowEnding::Killed(signal) => Some(format!("signal {signal}")),
        FollowEnding::Detached if first != FollowEnding::Detached => Some("a limit".to_owned()),
        _ => None,
    };
    let cut = (1..).zip(results).filter_map(|(number, r)| Some((number, ending(r)?)));
    cut.map(|(number, by)| format!("{by} ended run {number} early; the trace is exact up to that point")).collect()
}
