//! Where two recordings differ, aligned by calls, as the differences of traces are (`trodden diff --sequence`).

use super::recording::EventTable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_sequence::Grammar;
use trodden_sequence::compare::{differences, first_difference};
use trodden_sequence::grammar::{Fingerprints, Frames};

/// Events of a difference that are shown on each side.
pub const SHOWN: u64 = 12;

/// Differences of two sequences.
#[derive(Serialize)]
pub struct SequenceDifferences {
    /// Whether there is none.
    pub equal: bool,
    /// Position of the first event that differs, in both.
    pub first_difference: Option<u64>,
    /// The differences.
    pub differences: Vec<SequenceDifference>,
    /// Where paths run.
    pub sources: BTreeMap<String, String>,
}

/// A difference.
#[derive(Serialize)]
pub struct SequenceDifference {
    /// Calls that are open there, outermost first.
    pub open_calls: Vec<String>,
    /// What the left sequence has there.
    pub left: Stretch,
    /// What the right sequence has there.
    pub right: Stretch,
    /// Whether the frame's units were aligned.
    pub aligned: bool,
}

/// A stretch of a sequence.
#[derive(Serialize)]
pub struct Stretch {
    /// Position of its first event.
    pub start: u64,
    /// Position after its last event.
    pub end: u64,
    /// The first [`SHOWN`] events.
    pub events: Vec<String>,
}

/// Compares two sequences of events of one table; gives `top` differences at most, or all if that is 0.
pub fn diff(left: &Grammar, right: &Grammar, table: &EventTable, top: usize) -> SequenceDifferences {
    let first = first_difference(&Fingerprints::new(left), &Fingerprints::new(right));
    let most = if top == 0 { usize::MAX } else { top };
    let frames = Frames::new(left, table);
    let rows = differences(left, right, table, most).into_iter().take(most).map(|found| SequenceDifference {
        open_calls: table.labels(&frames.open_calls(found.left.start)),
        left: stretch(left, table, found.left),
        right: stretch(right, table, found.right),
        aligned: found.aligned,
    });
    let differences: Vec<SequenceDifference> = rows.collect();
    let sources = table.sources(differences.iter().flat_map(|row| row.left.events.iter().chain(&row.right.events)));
    SequenceDifferences { equal: first.is_none(), first_difference: first, differences, sources }
}

fn stretch(grammar: &Grammar, table: &EventTable, range: Range<u64>) -> Stretch {
    let shown = (range.end - range.start).min(SHOWN) as usize;
    let events = grammar.symbols_from(range.start).take(shown).map(|symbol| table.label(symbol).to_owned()).collect();
    Stretch { start: range.start, end: range.end, events }
}
