//! Where a function's counts are kept while the program runs, as part of a [`crate::UnitMap`].

use crate::observe::{EventWords, InterestingWords, LabelWords, SegmentWords};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Where a function's counts are kept in a thread's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// A word for each path: counter `i` is word `first_counter + i`.
    Array,
    /// An open-addressing table, if there are too many paths for an array.
    Table(CountTable),
    /// A word for each interesting path, and one for all others together.
    Interesting(InterestingWords),
    /// A word for each sum of labels, for functions that count only some of their paths.
    Labels(LabelWords),
    /// Words for pairs of a context and the function's first path in it.
    Segments(SegmentWords),
    /// In a stream, if the function has more events than paths.
    Events(EventWords),
}

impl Storage {
    /// Range of the words that count executions whose path is unknown.
    pub fn unattributed(&self) -> Range<u64> {
        match self {
            Storage::Table(table) => table.lost(),
            Storage::Interesting(words) => words.shared_word()..words.range().end,
            // Other words of labels and segments are dropped when they are read.
            Storage::Array | Storage::Events(_) | Storage::Labels(_) | Storage::Segments(_) => 0..0,
        }
    }

    /// Returns whether some of the function's paths are not counted.
    pub fn is_partial(&self) -> bool {
        matches!(self, Storage::Interesting(_) | Storage::Labels(_) | Storage::Segments(_))
    }
}

/// A table of counts: a word for executions that found the table full, then `slots` cells of two words, the key (path ID + 1, or 0 if free)
/// and the count. Keys are never changed. The cell of a path depends on what was counted before, so tables cannot be added cell by cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountTable {
    /// The unit's word that counts lost executions; it is followed by the cells.
    pub first_word: u64,
    /// Number of cells.
    pub slots: u64,
}

impl CountTable {
    /// Number of words of a table with that number of slots.
    pub const fn words(slots: u64) -> u64 {
        1 + 2 * slots
    }

    /// Range of its words.
    pub fn range(&self) -> Range<u64> {
        self.first_word..self.cells().end
    }

    /// Range of the one word that counts executions which found the table full.
    pub fn lost(&self) -> Range<u64> {
        self.first_word..self.first_word.saturating_add(1)
    }

    /// Range of the words of its cells.
    pub fn cells(&self) -> Range<u64> {
        self.first_word.saturating_add(1)..self.first_word.saturating_add(self.slots.saturating_mul(2).saturating_add(1))
    }
}
