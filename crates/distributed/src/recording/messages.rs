//! Messages about a recording: opaque functions, missing blocks, and partial traces that contradict the model.

use super::MAX_LISTED_NAMES;
use crate::code::TracedCode;
use crate::files::TracedFiles;
use crate::merge::describe_witness;
use crate::model::WitnessModel;
use crate::plan;
use std::collections::BTreeSet;
use std::ops::Range;
use trodden_binary::linked::split_address;
use trodden_text::words::plural;
use trodden_trace::FollowOutcome;
use trodden_witness::ReconstructError;

pub(super) fn describe_changed_code(ranges: &[Range<u64>], files: &TracedFiles) -> String {
    format!(
        "the program changed its own code or made it writable, so blocks executed there since then are missing ({})",
        ranges_in_words(ranges, files)
    )
}

fn ranges_in_words(ranges: &[Range<u64>], files: &TracedFiles) -> String {
    let shown = |range: &Range<u64>| {
        let ((file, start), (_, end)) = (split_address(range.start), split_address(range.end - 1));
        format!("{start:#x} to {end:#x} in {}", files.name(file))
    };
    let named: Vec<String> = ranges.iter().take(MAX_LISTED_NAMES).map(shown).collect();
    let more = ranges.len().saturating_sub(MAX_LISTED_NAMES);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

pub(super) fn describe_own_reads(followed: &FollowOutcome, files: &TracedFiles) -> Vec<String> {
    let mut notes = Vec::new();
    if !followed.read_code.is_empty() {
        notes.push(format!(
            "the program reads and executes its own code in turns too often to hide the trace there, so blocks executed there later are \
             missing ({}): `--collector single-step` records them",
            ranges_in_words(&followed.read_code, files)
        ));
    }
    if !followed.visible_code.is_empty() {
        notes.push(format!(
            "the program often reads data in its code, so the trace's jumps and breakpoints around it were not hidden ({})",
            ranges_in_words(&followed.visible_code, files)
        ));
    }
    if followed.shows_changes {
        notes.push(
            "the program restricted itself (seccomp or PR_SET_MDWE), or it uses protection keys, asynchronous I/O, or signals and \
             threads in a way in which reads of code cannot be intercepted. If it read its own code then, it saw the trace's jumps and \
             breakpoints: `--collector single-step` has none"
                .to_owned(),
        );
    }
    notes
}

pub(super) fn describe_unplaced_code(places: &BTreeSet<u64>) -> String {
    let named: Vec<String> = places.iter().take(MAX_LISTED_NAMES).map(|at| format!("{:#x}", split_address(*at).1)).collect();
    let more = places.len().saturating_sub(MAX_LISTED_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("executed code that is not in the graphs is missing from the trace: the code after {}{more}", named.join(", "))
}

/// Functions on a stack to which a thread switched back appear in the trace as if they had just been called.
pub(super) fn describe_stack_switches(switches: u64) -> String {
    let times = plural(switches.into(), "time", "times");
    format!(
        "a thread continued on a different stack {times}, as coroutines and goroutines do: the callers there are not known, and a resumed \
         function is shown as called again"
    )
}

pub(super) fn describe_missing_blocks(code: &TracedCode, unknown: &[(u64, u64)]) -> String {
    let name = |address: u64| code.function_containing(address).map_or_else(String::new, |name| format!(" in {name}"));
    let shown = |(from, to): &(u64, u64)| format!("{:#x}{} to {:#x}", split_address(*from).1, name(*from), split_address(*to).1);
    let named: Vec<String> = unknown.iter().take(MAX_LISTED_NAMES).map(shown).collect();
    let more = unknown.len().saturating_sub(MAX_LISTED_NAMES);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "blocks are missing after {}, which led to code that was not in the graphs ({}{more}): `--collector single-step` records them",
        plural(unknown.len() as u128, "indirect jump", "indirect jumps"),
        named.join(", ")
    )
}

pub(super) fn describe_new_targets(count: usize) -> String {
    let targets = plural(count as u128, "target of an indirect jump", "targets of indirect jumps");
    format!("a run revealed {targets} that the graphs lacked")
}

pub(super) fn format_runs(runs: usize) -> String {
    plural(runs as u128, "run", "runs")
}

pub(super) fn report_opaque_functions(model: &WitnessModel) {
    if model.opaque.is_empty() {
        return;
    }
    let named: Vec<String> = model.opaque.iter().take(MAX_LISTED_NAMES).map(|(name, why)| format!("{name} ({why})")).collect();
    let more = model.opaque.len().saturating_sub(MAX_LISTED_NAMES);
    let more = if more > 0 { format!(" and {more} more (`trodden report --json` lists all)") } else { String::new() };
    log::info!(
        "trodden does not trace the inside of {} of {} functions: {}{more}",
        model.opaque.len(),
        model.opaque.len() + model.functions.len() - 1,
        named.join(", ")
    );
}

pub(super) fn describe_contradiction(model: &WitnessModel, code: &TracedCode, error: &ReconstructError) -> String {
    let at = |w| describe_witness(model, code, w);
    match error {
        ReconstructError::UnexpectedSymbol { profile, found, expected, .. } => {
            let found = found.map_or_else(|| "its end".to_owned(), at);
            format!("run {} reached {found} where {} was expected", profile + 1, at(*expected))
        }
        ReconstructError::TraceContinues { profile, found, .. } => {
            format!("run {} reached {} where the program should have ended", profile + 1, at(*found))
        }
        ReconstructError::NoSuccessor { branch, next, blocks } => {
            let next: Vec<String> = next.iter().map(|w| w.map_or_else(|| "its end".to_owned(), at)).collect();
            let branch = plan::describe_branch(model, code, *branch);
            format!("after {blocks} blocks, from {branch}: the runs reach {} next", next.join(", "))
        }
        other => other.to_string(),
    }
}

pub(super) fn warn_of_contradiction(what: &str, is_repeated: bool) {
    let then = if is_repeated { ": repeating the runs with weaker assumptions" } else { "" };
    log::warn!("an assumption about opaque functions (functions whose inside is not traced) was wrong ({what}){then}");
}
