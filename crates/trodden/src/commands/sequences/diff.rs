//! `trodden stream diff`: where two recordings differ, aligned by calls, as `trodden trace diff` does for traces.

use super::open;
use super::recording::EventTable;
use super::{print, write_sources};
use crate::cli::StreamDiff;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use trodden_sequence::Grammar;
use trodden_sequence::compare::{differences, first_difference};
use trodden_sequence::grammar::{Fingerprints, Frames};

/// Events of a difference that are shown on each side.
const SHOWN: u64 = 12;

#[derive(Serialize)]
struct Document {
    equal: bool,
    /// Position of the first event that differs, in both.
    first_difference: Option<u64>,
    differences: Vec<Row>,
    /// Where paths run.
    sources: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Row {
    /// Calls that are open there, outermost first.
    open_calls: Vec<String>,
    left: Stretch,
    right: Stretch,
    /// Whether the frame's units were aligned.
    aligned: bool,
}

#[derive(Serialize)]
struct Stretch {
    start: u64,
    end: u64,
    /// The first events.
    events: Vec<String>,
}

/// Compares them.
///
/// # Errors
/// One cannot be read.
pub fn run(job: &StreamDiff) -> Result<ExitCode> {
    let mut table = EventTable::default();
    let (_, left) = open::open_into(&job.input.recording, &job.input, &mut table)?;
    let (_, right) = open::open_into(&job.right, &job.input, &mut table)?;
    let first = first_difference(&Fingerprints::new(&left), &Fingerprints::new(&right));
    let most = if job.input.top == 0 { usize::MAX } else { job.input.top };
    let frames = Frames::new(&left, &table);
    let rows = differences(&left, &right, &table, most).into_iter().take(most).map(|found| Row {
        open_calls: table.labels(&frames.open_calls(found.left.start)),
        left: stretch(&left, &table, found.left),
        right: stretch(&right, &table, found.right),
        aligned: found.aligned,
    });
    let differences: Vec<Row> = rows.collect();
    let sources = table.sources(differences.iter().flat_map(|row| row.left.events.iter().chain(&row.right.events)));
    let document = Document { equal: first.is_none(), first_difference: first, differences, sources };
    print(job.input.json, &document, |out| {
        match document.first_difference {
            None => writeln!(out, "the sequences are equal")?,
            Some(position) => writeln!(out, "the first {position} events are equal")?,
        }
        for (number, row) in (1..).zip(&document.differences) {
            let calls: Vec<&str> = row.open_calls.iter().map(|call| call.trim_start_matches("enter ")).collect();
            writeln!(out, "{number}. in {}{}", calls.join(" > "), if row.aligned { "" } else { " (too many units to align)" })?;
            for (name, side) in [("left ", &row.left), ("right", &row.right)] {
                let more = if side.end - side.start > SHOWN { " ..." } else { "" };
                writeln!(out, "   {name} {}..{}  {}{more}", side.start, side.end, side.events.join("  "))?;
            }
        }
        write_sources(out, &document.sources)
    })?;
    Ok(if document.equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn stretch(grammar: &Grammar, table: &EventTable, range: Range<u64>) -> Stretch {
    let shown = (range.end - range.start).min(SHOWN) as usize;
    let events = grammar.symbols_from(range.start).take(shown).map(|symbol| table.label(symbol).to_owned()).collect();
    Stretch { start: range.start, end: range.end, events }
}
