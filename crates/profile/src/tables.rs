//! Counts in tables: from cells to path numbers.
//!
//! The cell of a path depends on what the thread counted before (see [`trodden_unit::Table`]). So tables are read region by region, while
//! arrays can be summed word by word. The result is counters by path, as for arrays.
//!
//! Times of first executions are read in the same way, because they cannot be summed.
//!
//! Damaged cells (a count without a key, a path number out of range) are counted.

use crate::error::ProfileError;
use crate::raw::{Words, words};
use crate::sum::Sums;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use trodden_unit::UnitMap;

/// The content of the tables of some units.
#[derive(Debug, Default)]
pub struct Tables {
    /// For each requested unit: counters that are not zero, by index within the unit, ascending.
    pub counts: Vec<Vec<(u64, u64)>>,
    /// Number of damaged cells.
    pub damaged: u64,
}

/// The cells of one function in a region.
struct Cells {
    /// As words of the region.
    words: Range<u64>,
    /// Index of its unit among the requested ones.
    unit: usize,
    first_counter: u64,
    counters: u64,
}

/// Reads the tables of units, given by their place in the image, from a raw file.
///
/// # Errors
/// See [`crate::RawProfile::read`].
pub fn read(file: &Path, units: &[(usize, &UnitMap)]) -> Result<Tables, ProfileError> {
    let mut tables = Tables::default();
    let mut sums: Vec<Sums> = units.iter().map(|_| Sums::default()).collect();
    let mut cells = Vec::new();
    // The last key and its place.
    let mut key = (0, 0);
    words(file, &mut |raw: &Words, word| {
        if cells.is_empty() {
            cells = cells_of(raw, units);
        }
        let at = cells.partition_point(|c: &Cells| c.words.end <= word.index);
        let Some(found) = cells.get(at).filter(|c| c.words.contains(&word.index)) else { return };
        if (word.index - found.words.start).is_multiple_of(2) {
            key = (word.offset, word.value);
            return;
        }
        match key {
            (place, path) if place + 8 == word.offset && (1..=found.counters).contains(&path) => {
                sums[found.unit].add(found.first_counter + path - 1, word.value);
            }
            _ => tables.damaged += 1,
        }
    })?;
    tables.counts = sums.into_iter().map(|s| s.finish().0).collect();
    Ok(tables)
}

/// Where the cells are in a region, ascending.
fn cells_of(raw: &Words, units: &[(usize, &UnitMap)]) -> Vec<Cells> {
    let mut all = Vec::new();
    for (unit, (place, map)) in units.iter().enumerate() {
        let Some(first) = raw.first_words.get(*place) else { continue };
        for function in &map.functions {
            let Some(table) = function.table() else { continue };
            let words = table.cells();
            let words = words.start.saturating_add(*first)..words.end.saturating_add(*first);
            all.push(Cells { words, unit, first_counter: function.first_counter, counters: function.counters });
        }
    }
    all.sort_by_key(|c| c.words.start);
    all
}

/// Times of the first executions in any region of a raw file, for units given by their index in the image: for each unit by index of the
/// counter, ascending. Units that do not note times have none.
///
/// # Errors
/// See [`crate::RawProfile::read`].
pub fn read_times(file: &Path, units: &[(usize, &UnitMap)]) -> Result<Vec<Vec<(u64, u64)>>, ProfileError> {
    let mut found: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); units.len()];
    // First and last word of times, the unit.
    let mut ranges: Vec<(u64, u64, usize)> = Vec::new();
    words(file, &mut |raw: &Words, word| {
        if ranges.is_empty() {
            let range = |(unit, (place, map)): (usize, &(usize, &UnitMap))| {
                let first = raw.first_words.get(*place)?.checked_add(map.counters)?;
                Some((first, first.checked_add(map.counters)?, unit))
            };
            ranges = units.iter().enumerate().filter_map(range).collect();
            ranges.sort_unstable();
        }
        let at = ranges.partition_point(|r| r.1 <= word.index);
        let Some((first, _, unit)) = ranges.get(at).filter(|r| r.0 <= word.index) else { return };
        found[*unit].entry(word.index - first).and_modify(|t| *t = (*t).min(word.value)).or_insert(word.value);
    })?;
    Ok(found.into_iter().map(|times| times.into_iter().collect()).collect())
}

/// Whether a unit has tables.
pub fn has_tables(map: &UnitMap) -> bool {
    map.functions.iter().any(|f| f.table().is_some())
}

/// The counts of a unit's words without cells of tables, which have no meaning when regions are summed.
pub fn without_cells(map: &UnitMap, counts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut cells: Vec<Range<u64>> = map.functions.iter().filter_map(|f| Some(f.table()?.cells())).collect();
    cells.sort_by_key(|c| c.start);
    let is_cell = |index: u64| cells.get(cells.partition_point(|c| c.end <= index)).is_some_and(|c| c.contains(&index));
    counts.into_iter().filter(|(index, _)| !is_cell(*index)).collect()
}
