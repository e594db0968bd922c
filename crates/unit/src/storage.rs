//! The storage of a function's counts while the program runs, as part of a [`crate::UnitMap`].

use crate::observe::{EventWords, InterestingWords, IterationWords, LabelWords, SegmentWords};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Storage of a function's counts in a thread's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// A word for each path: counter `i` is word `first_counter + i`.
    Array,
    /// An open-addressing hash table, if there are too many paths for an array.
    Table(CountTable),
    /// A word for each interesting path, and a word for all other paths.
    Interesting(InterestingWords),
    /// A word for each sum of labels, for functions that count only some of their paths.
    Labels(LabelWords),
    /// Words for pairs of a context and the function's first path in it.
    Segments(SegmentWords),
    /// No memory: the function's events are in a stream, and there are more of them than paths.
    Events(EventWords),
    /// Words for paths over iterations.
    Iterations(IterationWords),
}

impl Storage {
    /// Returns the range of the words that count executions with an unknown path.
    pub fn unattributed(&self) -> Range<u64> {
        match self {
            Storage::Table(table) => table.overflow_word(),
            Storage::Interesting(words) => words.shared_word()..words.range().end,
            Storage::Iterations(words) => words.shared_word()..words.range().end,
            // Words of labels and segments that belong to no counted path are dropped when they are read.
            Storage::Array | Storage::Events(_) | Storage::Labels(_) | Storage::Segments(_) => 0..0,
        }
    }

    /// Returns whether some of the function's paths are not counted.
    pub fn is_partial(&self) -> bool {
        matches!(self, Storage::Interesting(_) | Storage::Labels(_) | Storage::Segments(_) | Storage::Iterations(_))
    }
}

/// A hash table of counts. Its first word counts executions for which the table was full. Then come `slots` cells of two words each: the
/// key (path ID + 1, or 0 if the cell is free) and the count. Keys are never changed. A path's cell depends on the paths that were counted
/// before, so tables cannot be added cell by cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountTable {
    /// The unit's word that counts executions for which the table was full. The cells follow it.
    pub first_word: u64,
    /// Number of cells.
    pub slots: u64,
}

impl CountTable {
    /// Returns the number of words of a table with `slots` slots.
    pub const fn words(slots: u64) -> u64 {
        1 + 2 * slots
    }

    /// Returns the range of its words in the unit.
    pub fn range(&self) -> Range<u64> {
        self.first_word..self.cells().end
    }

    /// Returns the range of the single word that counts executions for which the table was full.
    pub fn overflow_word(&self) -> Range<u64> {
        self.first_word..self.first_word.saturating_add(1)
    }

    /// Returns the range of its cells' words.
    pub fn cells(&self) -> Range<u64> {
        self.first_word.saturating_add(1)..self.first_word.saturating_add(self.slots.saturating_mul(2).saturating_add(1))
    }
}
