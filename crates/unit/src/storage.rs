//! Where a function's counts are kept while the program runs: storage classes, part of a [`crate::UnitMap`].

use crate::observe::{EventWords, InterestingWords, LabelWords, SegmentWords};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Where a function's counts are kept in the memory of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// A word for each path: counter `i` is word `first_counter + i`.
    Array,
    /// An open-addressing table, since there are more paths than words: see [`CountTable`].
    Table(CountTable),
    /// One word for each interesting path, and one for all others together: see [`InterestingWords`].
    Interesting(InterestingWords),
    /// A word for each sum of labels, of a function of which only some paths are counted: see [`LabelWords`].
    Labels(LabelWords),
    /// Words for pairs of a context and the function's first path in it: see [`SegmentWords`].
    Segments(SegmentWords),
    /// In a stream, where the function has more events than paths: see [`EventWords`].
    Events(EventWords),
}

impl Storage {
    /// The words that count executions whose path is not known, as a range.
    pub fn unattributed(&self) -> Range<u64> {
        match self {
            Storage::Table(table) => table.lost(),
            Storage::Interesting(words) => words.others()..words.range().end,
            // What words of labels and of segments hold besides is dropped when they are read.
            Storage::Array | Storage::Events(_) | Storage::Labels(_) | Storage::Segments(_) => 0..0,
        }
    }

    /// Whether some of the function's paths are left out.
    pub fn is_partial(&self) -> bool {
        matches!(self, Storage::Interesting(_) | Storage::Labels(_) | Storage::Segments(_))
    }
}

/// A table of counts: the word for executions that found it full, then `slots` cells of two words, key (a path's number and 1; 0: free) and
/// count. A key is never changed; which cell it is in depends on what was counted before, so tables cannot be added cell by cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountTable {
    /// The unit's word that counts lost executions; the cells lie behind it.
    pub first_word: u64,
    /// Number of cells.
    pub slots: u64,
}

impl CountTable {
    /// Words of a table with so many slots.
    pub const fn words(slots: u64) -> u64 {
        1 + 2 * slots
    }

    /// All its words, as a range.
    pub fn range(&self) -> Range<u64> {
        self.first_word..self.cells().end
    }

    /// The word that counts executions which found it full, as a range.
    pub fn lost(&self) -> Range<u64> {
        self.first_word..self.first_word.saturating_add(1)
    }

    /// The words of its cells, as a range.
    pub fn cells(&self) -> Range<u64> {
        self.first_word.saturating_add(1)..self.first_word.saturating_add(self.slots.saturating_mul(2).saturating_add(1))
    }
}
