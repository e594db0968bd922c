//! Decodes the words that a unit's probes wrote into counters of paths. Each kind of observation has its own decoder ([`observe`]).
//!
//! A raw file has one region of words per thread. Most words are summed over the regions first and decoded afterwards, since the map says
//! which path a word counts. This does not work for hash tables, where a path's cell depends on what the thread counted before; they are
//! decoded region by region. For times of first executions, the minimum is kept instead of the sum.

use crate::counts::Counts;
use crate::events::PathEvents;
use crate::observe::tables::TableDecoder;
use crate::observe::unknown::FirstExecutionTimes;
use crate::observe::{self, sums};
use crate::sum::CountSums;
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_unit::{FunctionMap, MapError, UnitMap};

/// Decodes the words of one compilation unit from all regions of a raw file.
pub struct UnitDecoder<'m> {
    map: &'m UnitMap,
    /// Words that can be summed over the regions before they are decoded.
    sums: CountSums,
    tables: TableDecoder,
    times: FirstExecutionTimes,
}

/// The decoded counters of a unit.
#[derive(Debug, Default)]
pub struct DecodedCounters {
    /// The unit's counts.
    pub counts: Counts,
    /// Number of invalid table cells: a count without a key, or a key that is not a path.
    pub invalid_cells: u64,
}

impl<'m> UnitDecoder<'m> {
    pub fn new(map: &'m UnitMap) -> UnitDecoder<'m> {
        UnitDecoder { map, sums: CountSums::default(), tables: TableDecoder::new(map), times: FirstExecutionTimes::new(map) }
    }

    /// Adds a nonzero word of a region. `index` is the word's index within the unit, `offset` its position in the file. A region's words
    /// must be added in ascending order.
    pub fn add_word(&mut self, index: u64, offset: u64, value: u64) {
        if self.tables.add_word(index, offset, value) || self.times.add_word(index, value) {
            return;
        }
        self.sums.add(index, value);
    }

    /// Adds a word that is already summed over all regions.
    pub fn add_sum(&mut self, index: u64, value: u128) {
        self.sums.add_wide(index, value);
    }

    pub fn into_decoded_counters(self) -> Result<DecodedCounters, MapError> {
        let (words, overflow) = self.sums.into_sparse_sums();
        let (words, events) = match self.map.events() {
            Some(_) => sums::split_cells_into_counts_and_events(&words, &overflow),
            None => (words, Vec::new()),
        };
        let mut executions = self.tables.sums;
        for_each_counter(self.map, &words, |counter, count| executions.add(counter, count))?;
        let mut sums = BTreeMap::<u64, PathEvents>::new();
        for_each_counter(self.map, &events, |counter, events| {
            sums.entry(counter).and_modify(|sum| *sum = sum.add(events)).or_insert(events);
        })?;
        let events = sums.into_iter().filter(|(_, events)| *events != PathEvents::default()).collect();
        let counts = Counts { executions: executions.into_sparse_sums().0, events, first_seen: self.times.first.into_iter().collect() };
        Ok(DecodedCounters { counts, invalid_cells: self.tables.invalid })
    }
}

/// Calls `put` with each counter and its value. `words` are pairs of index and value, summed over the regions and sorted by index.
fn for_each_counter<'m, T: Copy>(map: &'m UnitMap, words: &[(u64, T)], mut put: impl FnMut(u64, T)) -> Result<(), MapError> {
    let coded = |f: &'m FunctionMap| Some((observe::word_range_to_translate(&f.storage)?, f));
    let mut functions: Vec<(Range<u64>, &FunctionMap)> = map.functions.iter().filter_map(coded).collect();
    functions.sort_by_key(|(range, _)| range.start);
    let mut rest = words;
    for (range, function) in functions {
        let (plain, after) = rest.split_at(rest.partition_point(|w| w.0 < range.start));
        let (own, after) = after.split_at(after.partition_point(|w| w.0 < range.end));
        plain.iter().for_each(|&(index, value)| put(index, value));
        if !own.is_empty() {
            let counters = observe::translate_words(function, &own.iter().map(|w| w.0).collect::<Vec<u64>>())?;
            counters.into_iter().zip(own).for_each(|(counter, &(_, value))| counter.into_iter().for_each(|counter| put(counter, value)));
        }
        rest = after;
    }
    rest.iter().for_each(|&(index, value)| put(index, value));
    Ok(())
}
