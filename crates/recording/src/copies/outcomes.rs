//! How copies ended and what they printed, in words; where they differ.

use super::launching::CopyRun;
use super::spec::{CopyOutcome, file};
use std::fs;
use std::path::Path;
use trodden_profile::ProcessEnding;
use trodden_profile::copies::{CopiesError, MergedCopies};
use trodden_text::words::plural;

/// What it may mean that copies took other paths than each other or the program itself.
const WHY: &str = "`trodden repeatable -- COMMAND` says whether the program does the same each time, and whether its paths go by addresses \
    (tables of pointers): static data and code of copies are at other addresses";

/// How copies ended and what they printed, where that is not as in the first.
pub fn outcomes(copies: &[CopyRun]) -> Vec<String> {
    let mut out = Vec::new();
    let first = &copies[0].outcome;
    for (at, copy) in copies.iter().enumerate().skip(1) {
        let own = &copy.outcome;
        if own.ending != first.ending {
            out.push(format!("copy {at} ended with {}, copy 0 with {}", ending(own.ending), ending(first.ending)));
        }
        if own.output != first.output {
            out.push(format!("copy {at} printed something else than copy 0"));
        }
        if own.error_output != first.error_output {
            out.push(format!("copy {at} printed something else to standard error than copy 0"));
        }
    }
    out
}

/// How a program ended, in words.
fn ending(ending: ProcessEnding) -> String {
    match ending {
        ProcessEnding::Exit(code) => format!("status {code}"),
        ProcessEnding::Signal(signal) => format!("signal {signal}"),
    }
}

/// The exit status that stands for a copy's end.
pub fn status(outcome: &CopyOutcome) -> u8 {
    match outcome.ending {
        ProcessEnding::Exit(code) => code as u8,
        ProcessEnding::Signal(signal) => (128 + signal) as u8,
    }
}

/// Adds to an error what the first copy may say about it.
pub fn explain(error: CopiesError, first: &CopyRun, work: &Path) -> anyhow::Error {
    const LINES: usize = 3;
    if !matches!(error, CopiesError::Nothing) {
        return error.into();
    }
    let text = fs::read(file(work, "err", 0)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    let said = if last.is_empty() { "nothing to standard error".to_owned() } else { format!("to standard error: {last}") };
    anyhow::anyhow!("{error} (copy 0 ended with {} and printed {said})", ending(first.outcome.ending))
}

/// Says where counts do not fit together because a signal ended all copies.
pub fn report_interrupted(merged: &MergedCopies, end: ProcessEnding) {
    const SHOWN: usize = 5;
    if merged.profile.run.interrupted > 0 {
        log::warn!(
            "{} ended all copies, which came to each at another place: counts of different functions do not fit together, and the \
                profile says so",
            ending(end)
        );
    } else if matches!(end, ProcessEnding::Signal(_)) {
        log::info!("{} ended the program: a path that was under way then may be counted, and is not said to be unfinished", ending(end));
    }
    merged.interrupted.iter().take(SHOWN).for_each(|at| log::info!("{} ended the program within a path: {at}", ending(end)));
    if merged.interrupted.len() > SHOWN {
        log::info!("and at {} more places", merged.interrupted.len() - SHOWN);
    }
}

/// Says that the copies were not the same execution, and where they differ.
pub fn report_differences(differences: &[String]) {
    const SHOWN: usize = 10;
    log::warn!("the copies were not the same execution, so the profile is not exact:");
    differences.iter().take(SHOWN).for_each(|text| log::warn!("{text}"));
    if differences.len() > SHOWN {
        log::warn!("and {}", plural((differences.len() - SHOWN) as u128, "more difference", "more differences"));
    }
    log::warn!("{}", WHY);
}
