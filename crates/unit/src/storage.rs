//! How a function's counts are stored while the program runs, as described in a [`crate::UnitMap`].

use crate::observe::{EventWords, InterestingWords, IterationWords, LabelWords, SegmentWords};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How a thread's memory holds a function's counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// In an array with a word for each path: word `first_counter + i` is counter `i`.
    Array,
    /// In an open-addressing hash table, since the function has too many paths for an array.
    Table(CountTable),
    /// In one word for each interesting path, and one for all other paths.
    Interesting(InterestingWords),
    /// In one word for each sum of labels, since the function counts only some of its paths.
    Labels(LabelWords),
    /// In words for pairs of a context (the callers' paths) and a path of the function.
    Segments(SegmentWords),
    /// Not in memory: the function records a stream, in which it has more events than paths.
    Events(EventWords),
    /// In words for paths over iterations (sequences of consecutive paths).
    Iterations(IterationWords),
}

impl Storage {
    /// Returns the range of the words that count executions whose path is unknown.
    pub fn unattributed(&self) -> Range<u64> {
        match self {
            Storage::Table(table) => table.overflow_word_range(),
            Storage::Interesting(words) => words.shared_word()..words.range().end,
            Storage::Iterations(words) => words.shared_word()..words.range().end,
            // Words of labels and segments may also belong to no counted path, but such words are dropped when they are read.
            Storage::Array | Storage::Events(_) | Storage::Labels(_) | Storage::Segments(_) => 0..0,
        }
    }

    /// Returns whether some paths of the function are not counted.
    pub fn is_partial(&self) -> bool {
        matches!(self, Storage::Interesting(_) | Storage::Labels(_) | Storage::Segments(_) | Storage::Iterations(_))
    }
}

/// A hash table of counts. Its first word counts the executions for which the table was full. Then `slots` cells of two words follow: the
/// key (path ID + 1, or 0 if the cell is free) and the count. A cell never changes its key. In which cell a path is depends on the paths
/// that were counted before, so tables cannot be added cell by cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountTable {
    /// Index of the word that counts the executions for which the table was full. The cells follow it.
    pub first_word: u64,
    /// Number of cells.
    pub slots: u64,
}

impl CountTable {
    /// Returns the number of words of a table with `slots` cells.
    pub const fn word_count_of_slots(slots: u64) -> u64 {
        1 + 2 * slots
    }

    /// Returns the range of the table's words in the unit.
    pub fn range(&self) -> Range<u64> {
        self.first_word..self.cells().end
    }

    /// Returns the range that consists of the word that counts the executions for which the table was full.
    pub fn overflow_word_range(&self) -> Range<u64> {
        self.first_word..self.first_word.saturating_add(1)
    }

    /// Returns the range of the words that belong to cells.
    pub fn cells(&self) -> Range<u64> {
        self.first_word.saturating_add(1)..self.first_word.saturating_add(self.slots.saturating_mul(2).saturating_add(1))
    }
}
