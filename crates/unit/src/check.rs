//! Validates maps that were read from files. Readers use numbers from a map as array indices, so every map from a file must be checked: the
//! counters and words of functions must be within the unit's, and must not overlap.

use crate::map::{FunctionMap, UnitMap};
use crate::storage::Storage;
use std::ops::Range;

impl UnitMap {
    /// Checks the counters and words of all functions, and all indices in the map. The error describes the first inconsistency.
    pub fn check(&self) -> Result<(), String> {
        let mut ranges: Vec<(u64, u64, &str)> = self.functions.iter().map(|f| (f.first_counter, f.counters, f.name.as_str())).collect();
        ranges.sort();
        let mut end = 0;
        for (first, counters, name) in ranges {
            if first < end && counters > 0 {
                return Err(format!("the counters of function `{name}` overlap those of a different function"));
            }
            end = end.max(
                first.checked_add(counters).ok_or_else(|| format!("function `{name}` has an invalid number of counters ({counters})"))?,
            );
        }
        if !self.line_graphs.is_sound() {
            return Err("an index in a function's line graph is out of range".to_owned());
        }
        if let Some(bad) = self.functions.iter().find(|f| f.graph.node_count() != f.blocks.len() + 1) {
            return Err(format!(
                "the graph of function `{}` has {} nodes for {} blocks",
                bad.name,
                bad.graph.node_count(),
                bad.blocks.len()
            ));
        }
        match end <= self.counters {
            true => check_storage(self),
            false => Err(format!("its functions use {end} counters, but the unit has only {}", self.counters)),
        }
    }
}

/// Checks the words that functions use in the unit's memory: each function's words must be consistent, be among the unit's words, and not
/// overlap the words of another function.
fn check_storage(map: &UnitMap) -> Result<(), String> {
    let words = map.counter_words_in_regions();
    let mut ranges: Vec<_> = map.functions.iter().map(|f| (word_range(f).start, word_range(f).end, &f.name)).collect();
    ranges.sort();
    let mut end = 0;
    for (from, to, name) in ranges {
        if from < end && to > from || to > words {
            return Err(format!("the words of function `{name}` overlap those of a different function, or are not within the unit's"));
        }
        end = end.max(to);
    }
    let is_inconsistent = |f: &&FunctionMap| !has_sound_storage(f) || f.has_separate_words() && f.first_counter < words;
    match map.functions.iter().find(is_inconsistent) {
        Some(function) => Err(format!("the description of the words of function `{}` is inconsistent", function.name)),
        None => Ok(()),
    }
}

fn word_range(function: &FunctionMap) -> Range<u64> {
    match &function.storage {
        Storage::Array => function.first_counter..function.first_counter.saturating_add(function.counters),
        Storage::Table(table) => table.range(),
        Storage::Interesting(words) => words.range(),
        Storage::Labels(words) => words.range(),
        Storage::Segments(words) => words.range(),
        Storage::Events(words) => words.range(),
        Storage::Iterations(words) => words.range(),
    }
}

fn has_sound_storage(function: &FunctionMap) -> bool {
    match &function.storage {
        Storage::Array => true,
        Storage::Table(table) => table.slots > 0,
        Storage::Interesting(words) => words.is_sound(function.counters),
        Storage::Labels(words) => words.is_sound(function.dag.len()),
        Storage::Segments(words) => words.is_sound(function.counters),
        Storage::Events(words) => function.has_sound_events(words),
        Storage::Iterations(words) => words.is_sound(function.counters),
    }
}
