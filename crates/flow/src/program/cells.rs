//! Which counter counts a path: what the counters of a program mean.

use crate::interesting::{NumberAliases, PathEnding};
use crate::part::Part;

/// Which counter counts a path, by what the register and an increment sum to at its end.
#[derive(Clone, Debug)]
pub enum Cells {
    /// That of the path's number, which is the sum.
    Paths,
    /// What one of several copies counts: that of the path's sum of labels.
    Labels {
        /// For each edge of the numbered paths' acyclic graph its label.
        labels: Vec<i64>,
        /// Number of counters.
        cells: u64,
        /// Increments and places of counts, by edge of the acyclic graph of all paths.
        part: Part,
    },
    /// One for each interesting path, the last for all others.
    Interesting(InterestingCells),
    /// That of the path's number, which is in the lower bits of the sum. Where paths are looked up, those are known that have a word of
    /// their own (thesis, section 3.5.1).
    Preferential(PathEnding),
}

impl Cells {
    /// Whether a path is known where it is looked up, by the sum, if that alone says so.
    pub(super) fn is_known(&self, sum: i64) -> Option<bool> {
        match self {
            Cells::Preferential(ending) => Some(ending.word(sum) + 1 < ending.words()),
            _ => None,
        }
    }
}

/// Counters of interesting paths.
#[derive(Clone, Debug)]
pub struct InterestingCells {
    /// Which counter it is, by the sum.
    pub ending: PathEnding,
    /// Counters with the numbers of their paths, ascending. Other counters count other paths.
    pub paths: Vec<(u64, u64)>,
    /// Other paths that a counter of this list counts, too.
    pub aliases: NumberAliases,
    /// Whether the numbering was proven, not only tried on some paths.
    pub proven: bool,
}
