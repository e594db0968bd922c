//! Decodes the hash tables of functions with many paths. A path's cell depends on what the thread counted before, so the tables of
//! different threads cannot be added; keys and counts are read region by region.

use super::{FunctionCountAndSum, InexactFinder, InexactnessReason};
use crate::sum::CountSums;
use std::ops::Range;
use trodden_unit::{FunctionMap, Storage, UnitMap};

/// Finds functions whose hash tables were full, and sums the executions whose path is unknown for this reason.
#[derive(Default)]
pub struct FullTableFinder(FunctionCountAndSum);

impl InexactFinder for FullTableFinder {
    fn visit_function(&mut self, _: &UnitMap, function: &FunctionMap, unattributed: u64) {
        if unattributed > 0 && matches!(function.storage, Storage::Table(_)) {
            self.0.add(unattributed);
        }
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        match self.0 {
            FunctionCountAndSum { functions: 0, .. } => Vec::new(),
            FunctionCountAndSum { functions, sum } => vec![InexactnessReason::TableFull { functions, executions: sum }],
        }
    }
}

#[derive(Default)]
pub struct TableDecoder {
    /// Cells of all hash tables, sorted by first word.
    cells: Vec<TableCells>,
    /// File offset and value of the most recent word that was a key.
    key: Option<(u64, u64)>,
    /// Counts by counter.
    pub sums: CountSums,
    pub invalid: u64,
}

struct TableCells {
    words: Range<u64>,
    first_counter: u64,
    counters: u64,
}

impl TableDecoder {
    pub fn new(map: &UnitMap) -> TableDecoder {
        let cells = |f: &FunctionMap| Some(TableCells { words: f.table()?.cells(), first_counter: f.first_counter, counters: f.counters });
        let mut cells: Vec<TableCells> = map.functions.iter().filter_map(cells).collect();
        cells.sort_by_key(|c| c.words.start);
        TableDecoder { cells, ..TableDecoder::default() }
    }

    /// Decodes the word if it belongs to a hash table; otherwise returns false.
    pub fn add_word(&mut self, index: u64, offset: u64, value: u64) -> bool {
        let at = self.cells.partition_point(|c| c.words.end <= index);
        let Some(cells) = self.cells.get(at).filter(|c| c.words.contains(&index)) else { return false };
        if (index - cells.words.start).is_multiple_of(2) {
            self.key = Some((offset, value));
            return true;
        }
        match self.key {
            Some((key_offset, path)) if key_offset + 8 == offset && (1..=cells.counters).contains(&path) => {
                self.sums.add(cells.first_counter + path - 1, value);
            }
            _ => self.invalid += 1,
        }
        true
    }
}
