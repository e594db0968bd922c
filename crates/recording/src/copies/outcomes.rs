//! Reports exit statuses of copies, and how copies differ.

use super::launching::CopyRun;
use super::spec::{CopyOutcome, copy_file};
use std::fs;
use std::path::Path;
use trodden_profile::ProcessEnding;
use trodden_profile::copies::{CopiesError, MergedCopies};
use trodden_text::words::plural;

const DETERMINISM_ADVICE: &str = "run `trodden repeatable -- COMMAND` to check whether the program is deterministic, and whether its paths \
    depend on addresses (tables of pointers), since the code and static data of copies are at different addresses";

/// Describes how each copy differs from the first one in exit status and output.
pub fn describe_outcome_differences(copies: &[CopyRun]) -> Vec<String> {
    let mut out = Vec::new();
    let first = &copies[0].outcome;
    for (at, copy) in copies.iter().enumerate().skip(1) {
        let own = &copy.outcome;
        if own.ending != first.ending {
            out.push(format!("copy {at} ended with {}, but copy 0 with {}", format_ending(own.ending), format_ending(first.ending)));
        }
        if own.output != first.output {
            out.push(format!("copy {at} and copy 0 printed different output"));
        }
        if own.error_output != first.error_output {
            out.push(format!("copy {at} and copy 0 printed different output to standard error"));
        }
    }
    out
}

fn format_ending(ending: ProcessEnding) -> String {
    match ending {
        ProcessEnding::Exit(code) => format!("status {code}"),
        ProcessEnding::Signal(signal) => format!("signal {signal}"),
    }
}

/// Returns a copy's exit status as a shell reports it: if a signal ended the copy, 128 plus the signal number.
pub fn shell_exit_status(outcome: &CopyOutcome) -> u8 {
    match outcome.ending {
        ProcessEnding::Exit(code) => code as u8,
        ProcessEnding::Signal(signal) => (128 + signal) as u8,
    }
}

/// If `error` says that nothing was counted, adds the first copy's exit status and the last lines of its standard error output. Returns
/// other errors unchanged.
pub fn add_first_copy_output(error: CopiesError, first: &CopyRun, work: &Path) -> anyhow::Error {
    const MAX_SHOWN_LINES: usize = 3;
    if !matches!(error, CopiesError::Nothing) {
        return error.into();
    }
    let text = fs::read(copy_file(work, "err", 0)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(MAX_SHOWN_LINES)..].join("; ");
    let printed = if last.is_empty() { "nothing to standard error".to_owned() } else { format!("to standard error: {last}") };
    anyhow::anyhow!("{error} (copy 0 of the program ended with {} and printed {printed})", format_ending(first.outcome.ending))
}

/// If a signal ended all copies at different points, warns that counts are inconsistent and logs the paths that the signal interrupted.
pub fn report_interrupted_copies(merged: &MergedCopies, end: ProcessEnding) {
    const MAX_SHOWN: usize = 5;
    if merged.profile.run.interrupted > 0 {
        log::warn!(
            "{} ended all copies of the program, each at a different point, so the counts of different functions do not fit together. The \
             profile is marked as inexact",
            format_ending(end)
        );
    } else if matches!(end, ProcessEnding::Signal(_)) {
        log::info!("{} ended the program. The path in progress may be counted as if it were complete", format_ending(end));
    }
    merged
        .interrupted
        .iter()
        .take(MAX_SHOWN)
        .for_each(|at| log::info!("{} ended the program in the middle of a path: {at}", format_ending(end)));
    if merged.interrupted.len() > MAX_SHOWN {
        log::info!(
            "paths in {} were interrupted as well",
            plural((merged.interrupted.len() - MAX_SHOWN) as u128, "more place", "more places")
        );
    }
}

/// Warns that the copies did not execute the same paths, and lists how they differ.
pub fn report_differences(differences: &[String]) {
    const MAX_SHOWN: usize = 10;
    log::warn!("the copies of the program did not execute the same paths, so the profile is not exact:");
    differences.iter().take(MAX_SHOWN).for_each(|text| log::warn!("{text}"));
    if differences.len() > MAX_SHOWN {
        log::warn!("the list above omits {}", plural((differences.len() - MAX_SHOWN) as u128, "more difference", "more differences"));
    }
    log::warn!("{}", DETERMINISM_ADVICE);
}
