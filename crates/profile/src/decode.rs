//! From the words of a region to counters: each kind of [`Storage`] decodes itself.
//!
//! Most words are added up over regions (threads) first and decoded then: which path a word counts is in the map, and the same for
//! all threads. Two kinds cannot be added word by word. In which cell of a table a path is counted depends on what its thread counted
//! before, so that keys and counts are read region by region. Times of first executions have a minimum, not a sum.
//!
//! Cells that make no sense (a count without a key, a path that there is not) are damage, which is counted.

use crate::counts::Counts;
use crate::event_words;
use crate::events;
use crate::interesting;
use crate::labels;
use crate::sum::Sums;
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_unit::{FunctionMap, MapError, Storage, UnitMap};

/// Reads the words of one unit in all regions of a file.
pub struct UnitDecoder<'m> {
    map: &'m UnitMap,
    /// Words that are added up over regions.
    sums: Sums,
    tables: Tables,
    times: Times,
}

/// What was decoded.
#[derive(Debug, Default)]
pub struct Decoded {
    /// What the unit's counters hold.
    pub counts: Counts,
    /// Cells of tables that make no sense.
    pub damaged_cells: u64,
}

impl<'m> UnitDecoder<'m> {
    /// A reader of this unit's words.
    pub fn new(map: &'m UnitMap) -> UnitDecoder<'m> {
        UnitDecoder { map, sums: Sums::default(), tables: Tables::new(map), times: Times::new(map) }
    }

    /// A word of a region that is not zero: its place among the unit's words, where it is in the file, and what it holds. Words of a
    /// region come in order.
    pub fn word(&mut self, index: u64, offset: u64, value: u64) {
        if self.tables.word(index, offset, value) || self.times.word(index, value) {
            return;
        }
        self.sums.add(index, value);
    }

    /// A word that was added up over regions already.
    pub fn sum(&mut self, index: u64, value: u128) {
        self.sums.add_wide(index, value);
    }

    /// What the counters hold.
    ///
    /// # Errors
    /// The map is damaged.
    pub fn finish(self) -> Result<Decoded, MapError> {
        let (words, overflow) = self.sums.finish();
        let (words, events) = match self.map.events() {
            Some(_) => events::split_cells(&words, &overflow),
            None => (words, Vec::new()),
        };
        let mut executions = self.tables.sums;
        by_storage(self.map, &words, &mut executions)?;
        let counts = Counts { executions: executions.finish().0, events, first_seen: self.times.first.into_iter().collect() };
        Ok(Decoded { counts, damaged_cells: self.tables.damaged })
    }
}

/// Decodes words that were added up over regions, ascending, into counters.
fn by_storage(map: &UnitMap, words: &[(u64, u64)], out: &mut Sums) -> Result<(), MapError> {
    let mut functions: Vec<(Range<u64>, &FunctionMap)> = map.functions.iter().filter_map(|f| Some((coded_words(&f.storage)?, f))).collect();
    functions.sort_by_key(|(range, _)| range.start);
    let mut rest = words;
    for (range, function) in functions {
        let (plain, after) = rest.split_at(rest.partition_point(|w| w.0 < range.start));
        let (own, after) = after.split_at(after.partition_point(|w| w.0 < range.end));
        plain.iter().for_each(|&(index, count)| out.add(index, count));
        match &function.storage {
            Storage::Interesting(words) => interesting::decode(function, words, own, out),
            Storage::Labels(words) => labels::decode(function, words, own, out)?,
            Storage::Events(words) => event_words::decode(function, words, own, out)?,
            Storage::Array | Storage::Table(_) | Storage::Segments(_) => {}
        }
        rest = after;
    }
    rest.iter().for_each(|&(index, count)| out.add(index, count));
    Ok(())
}

/// The words of a function that stand for other counters than their number says.
fn coded_words(storage: &Storage) -> Option<Range<u64>> {
    match storage {
        Storage::Interesting(words) => Some(words.range()),
        Storage::Labels(words) => Some(words.first_word..words.first_word.saturating_add(words.words)),
        Storage::Events(words) => Some(words.range()),
        Storage::Array | Storage::Table(_) | Storage::Segments(_) => None,
    }
}

/// Tables of a unit: keys and counts, region by region.
#[derive(Default)]
struct Tables {
    /// By their first word.
    cells: Vec<Cells>,
    /// The last key: where it is in the file, and what it is.
    key: Option<(u64, u64)>,
    sums: Sums,
    damaged: u64,
}

/// The cells of one function.
struct Cells {
    words: Range<u64>,
    first_counter: u64,
    counters: u64,
}

impl Tables {
    fn new(map: &UnitMap) -> Tables {
        let cells = |f: &FunctionMap| Some(Cells { words: f.table()?.cells(), first_counter: f.first_counter, counters: f.counters });
        let mut cells: Vec<Cells> = map.functions.iter().filter_map(cells).collect();
        cells.sort_by_key(|c| c.words.start);
        Tables { cells, ..Tables::default() }
    }

    /// Whether the word is one of a cell's; it is read then.
    fn word(&mut self, index: u64, offset: u64, value: u64) -> bool {
        let at = self.cells.partition_point(|c| c.words.end <= index);
        let Some(cells) = self.cells.get(at).filter(|c| c.words.contains(&index)) else { return false };
        if (index - cells.words.start).is_multiple_of(2) {
            self.key = Some((offset, value));
            return true;
        }
        match self.key {
            Some((place, path)) if place + 8 == offset && (1..=cells.counters).contains(&path) => {
                self.sums.add(cells.first_counter + path - 1, value);
            }
            _ => self.damaged += 1,
        }
        true
    }
}

/// Times of first executions, which lie behind the counters, one for each.
#[derive(Default)]
struct Times {
    words: Range<u64>,
    first: BTreeMap<u64, u64>,
}

impl Times {
    fn new(map: &UnitMap) -> Times {
        let words = if map.has_times() { map.counters..map.counters.saturating_mul(2) } else { 0..0 };
        Times { words, ..Times::default() }
    }

    /// Whether the word is a time; it is read then.
    fn word(&mut self, index: u64, value: u64) -> bool {
        let is_time = self.words.contains(&index);
        if is_time {
            self.first.entry(index - self.words.start).and_modify(|t| *t = (*t).min(value)).or_insert(value);
        }
        is_time
    }
}
