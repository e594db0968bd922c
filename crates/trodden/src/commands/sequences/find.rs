//! `trodden stream find`: where a string of events occurs.

use super::open;
use super::recording::EventTable;
use super::{first, print};
use crate::cli::StreamFind;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::process::ExitCode;
use trodden_report::words::plural;
use trodden_sequence::SearchPattern;
use trodden_sequence::grammar::Frames;

#[derive(Serialize)]
struct Document {
    occurrences: u64,
    found: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    position: u64,
    /// Calls that are open there, outermost first.
    open_calls: Vec<String>,
}

/// Finds it.
///
/// # Errors
/// The recording cannot be read, or has no such event.
pub fn run(job: &StreamFind) -> Result<ExitCode> {
    let opened = open::open(&job.input)?;
    let frames = Frames::new(&opened.grammar, &opened.table);
    let mut occurrences = 0;
    let mut positions = Vec::new();
    for string in strings(&opened.table, &job.events)? {
        let Some(pattern) = SearchPattern::new(&opened.grammar, &string) else { continue };
        occurrences += pattern.count();
        let wanted = if job.input.top == 0 { usize::MAX } else { job.input.top };
        positions.extend(pattern.positions().take(wanted));
    }
    positions.sort_unstable();
    let found = first(positions, job.input.top)
        .into_iter()
        .map(|position| Found { position, open_calls: opened.table.labels(&frames.open_calls(position)) })
        .collect();
    let document = Document { occurrences, found };
    print(job.input.json, &document, |out| {
        writeln!(out, "{}", plural(document.occurrences.into(), "occurrence", "occurrences"))?;
        for found in &document.found {
            let calls: Vec<&str> = found.open_calls.iter().map(|call| call.trim_start_matches("enter ")).collect();
            writeln!(out, "{:>12}  in {}", found.position, calls.join(" > "))?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// All strings of symbols with these labels.
fn strings(table: &EventTable, labels: &[String]) -> Result<Vec<Vec<u64>>> {
    let mut strings = vec![Vec::new()];
    for label in labels {
        let symbols = table.labelled(label);
        ensure!(!symbols.is_empty(), "the recording has no event `{label}`: events are named FUNCTION:PATH, `enter FUNCTION` or `leave`");
        strings = strings.iter().flat_map(|s| symbols.iter().map(move |symbol| s.iter().copied().chain([*symbol]).collect())).collect();
    }
    Ok(strings)
}
