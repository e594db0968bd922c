//! Phases (`trodden-lab patterns phases`): intervals that execute the same paths, and for comparison the same basic blocks.

use super::recording::OpenedSequence;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_sequence::phases::{PhaseParameters, Phases, find_phases, split_into_intervals};

const MAX_LISTED_PHASES: usize = 5;

/// Phases of a sequence.
#[derive(Serialize)]
pub struct PhaseDocument {
    /// Length of an interval, in paths.
    pub interval: u64,
    /// Phases by the frequencies of paths.
    pub by_paths: FoundPhases,
    /// Phases by the frequencies of basic blocks, or `None` if the events do not name blocks.
    pub by_blocks: Option<FoundPhases>,
    /// Source locations of the paths, by label.
    pub sources: BTreeMap<String, String>,
}

/// The phases that one kind of frequency vector yields: of paths, or of basic blocks.
#[derive(Serialize)]
pub struct FoundPhases {
    /// For each interval, the index of its phase in `phases`.
    pub phase_of_interval: Vec<usize>,
    /// Intervals with a different phase than the previous interval.
    pub changes: Vec<usize>,
    /// The phases.
    pub phases: Vec<PhaseRow>,
}

/// A phase.
#[derive(Serialize)]
pub struct PhaseRow {
    /// Number of intervals in the phase.
    pub intervals: usize,
    /// The most representative interval.
    pub representative: usize,
    /// The most frequent paths or blocks, with their share in percent.
    pub hot: Vec<(String, f64)>,
}

/// Finds at most `max_phases` phases by paths and by blocks. The sequence is split into about 100 intervals.
pub fn document_phases(opened: &OpenedSequence, max_phases: usize) -> Result<PhaseDocument> {
    let interval = opened.path_event_count().div_ceil(100).max(1);
    let parameters = PhaseParameters { max_phases, ..PhaseParameters::default() };
    let table = &opened.table;
    let by_paths = find_phases_in_sequence(opened, interval, parameters, |symbol, add| add(symbol, 1.0))?;
    let by_blocks = if has_blocks(opened) {
        let add_blocks = |symbol, add: &mut dyn FnMut(u64, f64)| table.entry(symbol).blocks.iter().for_each(|block| add(*block, 1.0));
        Some(to_found_phases(find_phases_in_sequence(opened, interval, parameters, add_blocks)?, |block| {
            table.block_name(block).to_owned()
        }))
    } else {
        None
    };
    let by_paths = to_found_phases(by_paths, |symbol| table.label(symbol).to_owned());
    let sources = table.sources(by_paths.phases.iter().flat_map(|phase| phase.hot.iter().map(|(label, _)| label)));
    Ok(PhaseDocument { interval, by_paths, by_blocks, sources })
}

fn has_blocks(opened: &OpenedSequence) -> bool {
    let mut paths = opened.grammar.terminals().iter().filter(|symbol| opened.table.is_path(**symbol));
    paths.all(|symbol| !opened.table.entry(*symbol).blocks.is_empty())
}

fn find_phases_in_sequence(
    opened: &OpenedSequence,
    interval: u64,
    parameters: PhaseParameters,
    features: impl Fn(u64, &mut dyn FnMut(u64, f64)),
) -> Result<Phases> {
    let paths = opened.grammar.symbols().filter(|symbol| opened.table.is_path(*symbol));
    Ok(find_phases(&split_into_intervals(paths, interval, features)?, parameters)?)
}

fn to_found_phases(phases: Phases, label: impl Fn(u64) -> String) -> FoundPhases {
    let changes = phases.phase_change_intervals();
    let rows = phases.phases.iter().map(|phase| PhaseRow {
        intervals: phase.intervals,
        representative: phase.representative,
        hot: phase.features.iter().take(MAX_LISTED_PHASES).map(|(feature, share)| (label(*feature), 100.0 * share)).collect(),
    });
    FoundPhases { changes, phases: rows.collect(), phase_of_interval: phases.phase_of_interval }
}
