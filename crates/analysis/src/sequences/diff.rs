//! Finds the differences between two recordings, aligned by calls (`trodden diff --sequence`).

use super::recording::EventTable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_sequence::Grammar;
use trodden_sequence::compare::{differences, first_difference};
use trodden_sequence::grammar::{Fingerprints, RuleFrameEffects};

/// Maximum number of events listed on each side of a difference.
pub const MAX_EVENTS_PER_DIFFERENCE: u64 = 12;

/// The differences between two sequences.
#[derive(Serialize)]
pub struct SequenceDifferences {
    /// True if there is no difference.
    pub equal: bool,
    /// Position of the first differing event, in both sequences.
    pub first_difference: Option<u64>,
    /// The differences.
    pub differences: Vec<DifferenceRow>,
    /// Source locations of the paths, by label.
    pub sources: BTreeMap<String, String>,
}

/// A difference.
#[derive(Serialize)]
pub struct DifferenceRow {
    /// Functions with an active call at the difference, outermost first.
    pub open_calls: Vec<String>,
    /// The differing range on the left.
    pub left: LabelledRange,
    /// The differing range on the right.
    pub right: LabelledRange,
    /// True if the two ranges were aligned call by call. If false, they may have common parts.
    pub aligned: bool,
}

/// A range of a sequence.
#[derive(Serialize)]
pub struct LabelledRange {
    /// Position of the first event.
    pub start: u64,
    /// Position after the last event.
    pub end: u64,
    /// The first [`MAX_EVENTS_PER_DIFFERENCE`] events.
    pub events: Vec<String>,
}

/// Compares two sequences whose events are in the same table. Returns at most `top` differences, or all if `top` is 0.
pub fn diff(left: &Grammar, right: &Grammar, table: &EventTable, top: usize) -> SequenceDifferences {
    let first = first_difference(&Fingerprints::new(left), &Fingerprints::new(right));
    let limit = if top == 0 { usize::MAX } else { top };
    let frames = RuleFrameEffects::new(left, table);
    let rows = differences(left, right, table, limit).into_iter().take(limit).map(|found| DifferenceRow {
        open_calls: table.labels(&frames.open_calls(found.left.start)),
        left: label_range(left, table, found.left),
        right: label_range(right, table, found.right),
        aligned: found.aligned,
    });
    let differences: Vec<DifferenceRow> = rows.collect();
    let sources = table.sources(differences.iter().flat_map(|row| row.left.events.iter().chain(&row.right.events)));
    SequenceDifferences { equal: first.is_none(), first_difference: first, differences, sources }
}

fn label_range(grammar: &Grammar, table: &EventTable, range: Range<u64>) -> LabelledRange {
    let shown = (range.end - range.start).min(MAX_EVENTS_PER_DIFFERENCE) as usize;
    let events = grammar.symbols_from(range.start).take(shown).map(|symbol| table.label(symbol).to_owned()).collect();
    LabelledRange { start: range.start, end: range.end, events }
}
