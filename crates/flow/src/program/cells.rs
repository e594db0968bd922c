//! What the counters of a program count.

use crate::interesting::{NumberAliases, PathEnding};
use crate::part::Part;

/// Maps a path to its counter, given the sum of the register and an increment at its end.
#[derive(Clone, Debug)]
pub enum Cells {
    /// The sum is the path's number, and the number of its counter.
    Paths,
    /// The counter is the path's sum of labels. For one of several copies of a program.
    Labels {
        /// For each edge of the numbered acyclic graph, its label.
        labels: Vec<i64>,
        /// Number of counters.
        cells: u64,
        /// Increments and counting edges, by edge of the acyclic graph of all paths.
        part: Part,
    },
    /// Each interesting path has a counter; the last counter is that of all other paths.
    Interesting(InterestingCells),
    /// The lower bits of the sum are the path's number, which is that of its counter. Where paths are looked up, a path is known if its
    /// ending has a word for it (thesis, section 3.5.1).
    Preferential(PathEnding),
}

impl Cells {
    /// Whether the path with this sum is known where paths are looked up; `None` if the sum alone does not tell.
    pub(super) fn is_known(&self, sum: i64) -> Option<bool> {
        match self {
            Cells::Preferential(ending) => Some(ending.counter_of(sum) + 1 < ending.counter_count()),
            _ => None,
        }
    }
}

/// Counters of interesting paths.
#[derive(Clone, Debug)]
pub struct InterestingCells {
    /// Maps the sum to a counter.
    pub ending: PathEnding,
    /// Counters with the numbers of their paths, ascending. Counters that are not listed count other paths.
    pub paths: Vec<(u64, u64)>,
    /// Other paths that are counted by a listed counter, too.
    pub aliases: NumberAliases,
    /// Whether the numbering was proven correct, and not only tested on some paths.
    pub proven: bool,
}
