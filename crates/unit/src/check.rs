//! Whether a map that was read from a file makes sense: its functions' counters and words lie within the unit's and do not overlap.
//!
//! Readers index arrays by what a map says, so every map that comes from outside passes here first. Time: O(n log n) for n functions.

use crate::SegmentWords;
use crate::map::{FunctionMap, UnitMap};
use crate::storage::{InterestingWords, Storage};

impl UnitMap {
    /// Checks counters, words and tables of all functions.
    ///
    /// # Errors
    /// Names the function whose counters or words overlap another's or lie outside the unit.
    pub fn check(&self) -> Result<(), String> {
        let mut ranges: Vec<(u64, u64, &str)> = self.functions.iter().map(|f| (f.first_counter, f.counters, f.name.as_str())).collect();
        ranges.sort();
        let mut end = 0;
        for (first, counters, name) in ranges {
            if first < end && counters > 0 {
                return Err(format!("the counters of function `{name}` are another's, too"));
            }
            end = end.max(first.checked_add(counters).ok_or_else(|| format!("function `{name}` has {counters} counters"))?);
        }
        if !self.line_graphs.is_sound() {
            return Err("the graph of a function's lines is damaged".to_owned());
        }
        match end <= self.counters {
            true => check_storage(self),
            false => Err(format!("its functions have {end} counters, the unit {}", self.counters)),
        }
    }
}

/// Checks that each function's table or words lie within the unit's words and overlap no other's.
fn check_storage(map: &UnitMap) -> Result<(), String> {
    let words = map.counters_in_regions();
    let mut ranges = Vec::new();
    for function in &map.functions {
        let (from, to) = match &function.storage {
            Storage::Table(table) => (table.first_word, table.cells().end),
            Storage::Interesting(words) => (words.first_word, words.range().end),
            Storage::Labels(labels) => (labels.range().start, labels.range().end),
            Storage::Segments(segments) => (segments.range().start, segments.range().end),
            Storage::Events(events) => (events.range().start, events.range().end),
            Storage::Array => (function.first_counter, function.unattributed().end),
        };
        ranges.push((from, to, &function.name));
    }
    ranges.sort();
    let mut end = 0;
    for (from, to, name) in ranges {
        if from < end && to > from || to > words {
            return Err(format!("the words where function `{name}` counts are another's, too, or are not the unit's"));
        }
        end = end.max(to);
    }
    let is_bad = |f: &&FunctionMap| match &f.storage {
        Storage::Table(table) => table.slots == 0 || f.first_counter < words,
        Storage::Interesting(interesting) => !is_sound(interesting, f.counters) || f.first_counter < words,
        Storage::Labels(labels) => labels.labels.len() != f.dag.len() || f.first_counter < words,
        Storage::Segments(segments) => !is_sound_of_segments(segments, f.counters) || f.first_counter < words,
        Storage::Events(events) => !f.has_sound_events(events) || f.first_counter < words,
        Storage::Array => false,
    };
    match map.functions.iter().find(is_bad) {
        Some(bad) => Err(format!("what the map says of the words of function `{}` makes no sense", bad.name)),
        None => Ok(()),
    }
}

/// Whether words and paths are such as a function with so many paths has.
fn is_sound(interesting: &InterestingWords, paths: u64) -> bool {
    let known = |&(word, path): &(u64, u64)| word < interesting.words.saturating_sub(1) && path < paths;
    interesting.words > 0 && interesting.paths.is_sorted_by(|a, b| a.0 < b.0) && interesting.paths.iter().all(known)
}

/// Whether words, contexts and pairs are such as a function with so many paths has.
fn is_sound_of_segments(segments: &SegmentWords, paths: u64) -> bool {
    let pairs = segments.interesting.iter().all(|(context, path)| *context as usize <= segments.contexts.len() && *path < paths);
    let rows = (segments.contexts.len() as u64 + 1).saturating_mul(paths.max(1).next_power_of_two());
    let words = match segments.keys.len() as u64 {
        0 => segments.words == 0 || segments.words == rows,
        keys => segments.words == keys + 1 && segments.keys.iter().all(|key| *key < rows || *key == u64::MAX),
    };
    pairs && words
}
