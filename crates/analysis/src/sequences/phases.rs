//! Intervals that execute the same paths; beside them what a detector by basic blocks finds (`trodden patterns phases`).

use super::recording::Opened;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_sequence::phases::{PhaseParameters, Phases, find_phases, intervals};

/// Hot paths that are shown of a phase.
const SHOWN: usize = 5;

/// What was found.
#[derive(Serialize)]
pub struct PhaseDocument {
    /// Events of paths in an interval.
    pub interval: u64,
    /// By vectors of paths.
    pub by_paths: FoundPhases,
    /// By vectors of basic blocks, if the events name them.
    pub by_blocks: Option<FoundPhases>,
    /// Where paths run.
    pub sources: BTreeMap<String, String>,
}

/// Phases by one kind of vector.
#[derive(Serialize)]
pub struct FoundPhases {
    /// The phase of each interval.
    pub of_interval: Vec<usize>,
    /// Intervals whose phase is not that of the one before.
    pub changes: Vec<usize>,
    /// The phases.
    pub phases: Vec<PhaseRow>,
}

/// A phase.
#[derive(Serialize)]
pub struct PhaseRow {
    /// Intervals in it.
    pub intervals: usize,
    /// The interval that stands for it best.
    pub representative: usize,
    /// The most frequent paths, with their share in percent; of blocks their names.
    pub hot: Vec<(String, f64)>,
}

/// Finds phases by paths and by blocks. The sequence is divided into a hundred intervals.
///
/// # Errors
/// A parameter is out of its range.
pub fn phases_of(opened: &Opened, most: usize) -> Result<PhaseDocument> {
    let interval = opened.path_events().div_ceil(100).max(1);
    let parameters = PhaseParameters { most_phases: most, ..PhaseParameters::default() };
    let table = &opened.table;
    let by_paths = phases(opened, interval, parameters, |symbol, add| add(symbol, 1.0))?;
    let by_blocks = if has_blocks(opened) {
        let add_blocks = |symbol, add: &mut dyn FnMut(u64, f64)| table.entry(symbol).blocks.iter().for_each(|block| add(*block, 1.0));
        Some(found(phases(opened, interval, parameters, add_blocks)?, |block| table.block_name(block).to_owned()))
    } else {
        None
    };
    let by_paths = found(by_paths, |symbol| table.label(symbol).to_owned());
    let sources = table.sources(by_paths.phases.iter().flat_map(|phase| phase.hot.iter().map(|(label, _)| label)));
    Ok(PhaseDocument { interval, by_paths, by_blocks, sources })
}

fn has_blocks(opened: &Opened) -> bool {
    let mut paths = opened.grammar.terminals().iter().filter(|symbol| opened.table.is_path(**symbol));
    paths.all(|symbol| !opened.table.entry(*symbol).blocks.is_empty())
}

fn phases(opened: &Opened, interval: u64, parameters: PhaseParameters, features: impl Fn(u64, &mut dyn FnMut(u64, f64))) -> Result<Phases> {
    let paths = opened.grammar.symbols().filter(|symbol| opened.table.is_path(*symbol));
    Ok(find_phases(&intervals(paths, interval, features)?, parameters)?)
}

fn found(phases: Phases, label: impl Fn(u64) -> String) -> FoundPhases {
    let changes = phases.changes();
    let rows = phases.phases.iter().map(|phase| PhaseRow {
        intervals: phase.intervals,
        representative: phase.representative,
        hot: phase.features.iter().take(SHOWN).map(|(feature, share)| (label(*feature), 100.0 * share)).collect(),
    });
    FoundPhases { changes, phases: rows.collect(), of_interval: phases.of_interval }
}
