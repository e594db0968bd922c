//! From the words of a region to counters: each kind of observation decodes its own words ([`observe`]).
//!
//! Most words are added up over regions (threads) first and decoded then: which path a word counts is in the map, and the same for
//! all threads. Two kinds cannot be added word by word. In which cell of a table a path is counted depends on what its thread counted
//! before, so that keys and counts are read region by region. Times of first executions have a minimum, not a sum.
//!
//! Cells that make no sense (a count without a key, a path that there is not) are damage, which is counted.

use crate::counts::Counts;
use crate::events::PathEvents;
use crate::observe::tables::Tables;
use crate::observe::unknown::Times;
use crate::observe::{self, sums};
use crate::sum::Sums;
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_unit::{FunctionMap, MapError, UnitMap};

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
    pub fn finish(self) -> Result<Decoded, MapError> {
        let (words, overflow) = self.sums.finish();
        let (words, events) = match self.map.events() {
            Some(_) => sums::split_cells(&words, &overflow),
            None => (words, Vec::new()),
        };
        let mut executions = self.tables.sums;
        by_counter(self.map, &words, |counter, count| executions.add(counter, count))?;
        let mut sums = BTreeMap::<u64, PathEvents>::new();
        by_counter(self.map, &events, |counter, events| {
            sums.entry(counter).and_modify(|sum| *sum = sum.add(events)).or_insert(events);
        })?;
        let events = sums.into_iter().filter(|(_, events)| *events != PathEvents::default()).collect();
        let counts = Counts { executions: executions.finish().0, events, first_seen: self.times.first.into_iter().collect() };
        Ok(Decoded { counts, damaged_cells: self.tables.damaged })
    }
}

/// Gives words that were added up over regions, ascending, to the counters for which they stand.
fn by_counter<'m, T: Copy>(map: &'m UnitMap, words: &[(u64, T)], mut put: impl FnMut(u64, T)) -> Result<(), MapError> {
    let coded = |f: &'m FunctionMap| Some((observe::coded_range(&f.storage)?, f));
    let mut functions: Vec<(Range<u64>, &FunctionMap)> = map.functions.iter().filter_map(coded).collect();
    functions.sort_by_key(|(range, _)| range.start);
    let mut rest = words;
    for (range, function) in functions {
        let (plain, after) = rest.split_at(rest.partition_point(|w| w.0 < range.start));
        let (own, after) = after.split_at(after.partition_point(|w| w.0 < range.end));
        plain.iter().for_each(|&(index, value)| put(index, value));
        if !own.is_empty() {
            let counters = observe::counters(function, &own.iter().map(|w| w.0).collect::<Vec<u64>>())?;
            counters.into_iter().zip(own).for_each(|(counter, &(_, value))| counter.into_iter().for_each(|counter| put(counter, value)));
        }
        rest = after;
    }
    rest.iter().for_each(|&(index, value)| put(index, value));
    Ok(())
}
