//! Whether runs repeat the first one, so that what they saw can be merged.

use super::runs::{FirstRun, RunResult};
use anyhow::{Result, bail, ensure};
use nix::sys::signal::Signal;
use trodden_trace::FollowEnding;

/// Whether a program can be traced in several runs.
///
/// # Errors
/// It has threads, or got signals whose place is not the same in each run.
pub fn repeatable(first: &FirstRun) -> Result<()> {
    let followed = &first.outcome.followed;
    let one = "take `--runs 1`, which watches every block in one run";
    ensure!(
        followed.threads == 1,
        "the program has {} threads (or processes that borrow its memory, by vfork), which race; several runs cannot be merged: {one}",
        followed.threads
    );
    ensure!(followed.changed_code.is_empty(), "the program changes its own code, which is not watched then: {one}");
    ensure!(followed.asynchronous_signals == 0, "signals came at any time, and would come elsewhere in another run: {one}");
    ensure!(
        followed.handled_faults == 0,
        "a handler ran because of a fault (SIGSEGV or the like), and which instruction it interrupted is not seen where only some blocks \
         are watched: {one}"
    );
    Ok(())
}

/// Signals by which a program ends itself.
const FAULTS: [i32; 5] =
    [Signal::SIGSEGV as i32, Signal::SIGBUS as i32, Signal::SIGILL as i32, Signal::SIGFPE as i32, Signal::SIGTRAP as i32];

/// Whether all runs did what the first one did.
///
/// # Errors
/// One did not.
pub fn equal(results: &[RunResult], first: FollowEnding) -> Result<()> {
    for (number, result) in (1..).zip(results) {
        let ending = result.outcome.followed.ending;
        if let FollowEnding::Killed(signal) = ending
            && ending != first
            && FAULTS.contains(&signal)
        {
            bail!(
                "signal {signal} ended run {number}, and not the first run: what differs from run to run cannot be merged: take `--runs 1`"
            );
        }
        if let Some(divergence) = &result.outcome.divergence {
            bail!(
                "run {number} diverged from the first run at {divergence}; what differs from run to run cannot be merged: fix its cause \
                    (files that the first run made or removed: `--fresh-folder`; code that reads itself: `--collector single-step`), \
                    or take `--runs 1`, which watches every block in one run"
            );
        }
    }
    Ok(())
}

/// Runs that were ended before the first one's end.
pub fn cut_runs(results: &[RunResult], first: FollowEnding) -> Vec<String> {
    let ending = |r: &RunResult| match r.outcome.followed.ending {
        FollowEnding::Killed(signal) if first != FollowEnding::Killed(signal) => Some(format!("signal {signal}")),
        FollowEnding::Detached if first != FollowEnding::Detached => Some("a limit".to_owned()),
        _ => None,
    };
    let cut = (1..).zip(results).filter_map(|(number, r)| Some((number, ending(r)?)));
    cut.map(|(number, by)| format!("{by} ended run {number} before its end: the trace is exact up to there")).collect()
}
