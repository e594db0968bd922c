//! Search for a string of events (`trodden find --events`).

use super::numbers::take_top;
use super::recording::{EventTable, OpenedSequence};
use anyhow::{Result, ensure};
use serde::Serialize;
use trodden_sequence::SearchPattern;
use trodden_sequence::grammar::RuleFrameEffects;

/// Occurrences of a string of events.
#[derive(Serialize)]
pub struct FoundEvents {
    /// Total number of occurrences.
    pub occurrences: u64,
    /// The first occurrences.
    pub found: Vec<FoundPosition>,
}

/// An occurrence.
#[derive(Serialize)]
pub struct FoundPosition {
    /// Position of the first event.
    pub position: u64,
    /// Functions with an active call at this position, outermost first.
    pub open_calls: Vec<String>,
}

/// Finds a string of events, given by their labels. Returns the first `top` occurrences, or all if `top` is 0. Fails if an event is not in
/// the recording.
pub fn find(opened: &OpenedSequence, events: &[String], top: usize) -> Result<FoundEvents> {
    let frames = RuleFrameEffects::new(&opened.grammar, &opened.table);
    let mut occurrences = 0;
    let mut positions = Vec::new();
    for string in strings_of_symbols(&opened.table, events)? {
        let Some(pattern) = SearchPattern::new(&opened.grammar, &string) else { continue };
        occurrences += pattern.count();
        let wanted = if top == 0 { usize::MAX } else { top };
        positions.extend(pattern.positions().take(wanted));
    }
    positions.sort_unstable();
    let found = take_top(positions, top)
        .into_iter()
        .map(|position| FoundPosition { position, open_calls: opened.table.labels(&frames.open_calls(position)) })
        .collect();
    Ok(FoundEvents { occurrences, found })
}

/// Returns all strings of symbols with these labels. A label may belong to several symbols.
fn strings_of_symbols(table: &EventTable, labels: &[String]) -> Result<Vec<Vec<u64>>> {
    let mut strings = vec![Vec::new()];
    for label in labels {
        let symbols = table.find_symbols_with_label(label);
        ensure!(!symbols.is_empty(), "the recording has no event `{label}`. Events are written FUNCTION:PATH, `enter FUNCTION` or `leave`");
        strings = strings.iter().flat_map(|s| symbols.iter().map(move |symbol| s.iter().copied().chain([*symbol]).collect())).collect();
    }
    Ok(strings)
}
