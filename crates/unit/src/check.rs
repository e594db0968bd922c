//! Whether a map that was read from a file makes sense: its functions' counters and words lie within the unit's and do not overlap.
//!
//! Readers index arrays by what a map says, so every map that comes from outside passes here first. Time: O(n log n) for n functions.

use crate::map::{FunctionMap, UnitMap};
use crate::storage::Storage;
use std::ops::Range;

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
    let mut ranges: Vec<_> = map.functions.iter().map(|f| (range(f).start, range(f).end, &f.name)).collect();
    ranges.sort();
    let mut end = 0;
    for (from, to, name) in ranges {
        if from < end && to > from || to > words {
            return Err(format!("the words where function `{name}` counts are another's, too, or are not the unit's"));
        }
        end = end.max(to);
    }
    let is_bad = |f: &&FunctionMap| !is_sound(f) || f.counts_elsewhere() && f.first_counter < words;
    match map.functions.iter().find(is_bad) {
        Some(bad) => Err(format!("what the map says of the words of function `{}` makes no sense", bad.name)),
        None => Ok(()),
    }
}

/// The words of a function, as a range.
fn range(function: &FunctionMap) -> Range<u64> {
    match &function.storage {
        Storage::Array => function.first_counter..function.first_counter.saturating_add(function.counters),
        Storage::Table(table) => table.range(),
        Storage::Interesting(words) => words.range(),
        Storage::Labels(words) => words.range(),
        Storage::Segments(words) => words.range(),
        Storage::Events(words) => words.range(),
    }
}

/// Whether what is said of a function's words is such as it has.
fn is_sound(function: &FunctionMap) -> bool {
    match &function.storage {
        Storage::Array => true,
        Storage::Table(table) => table.slots > 0,
        Storage::Interesting(words) => words.is_sound(function.counters),
        Storage::Labels(words) => words.is_sound(function.dag.len()),
        Storage::Segments(words) => words.is_sound(function.counters),
        Storage::Events(words) => function.has_sound_events(words),
    }
}
