//! How a program's counters correspond to paths.

use crate::interesting::{PathEndCounterMapping, UninterestingPathAliases};
use crate::part::Part;

/// The mapping of a path's final sum (the register plus the last increment) to its counter.
#[derive(Clone, Debug)]
pub enum CounterCells {
    /// The sum is both the path's number and the index of its counter.
    Paths,
    /// The index of the counter is the path's sum of labels. Used for one of several copies of a program.
    Labels {
        /// For each edge of the numbered acyclic graph, its label.
        labels: Vec<i64>,
        /// Number of counters.
        cells: u64,
        /// The copy's increments and the edges on which it counts, by edge of the acyclic graph of all paths.
        part: Part,
    },
    /// Each interesting path has a counter, and the last counter counts all other paths.
    Interesting(InterestingPathCells),
    /// The lower bits of the sum are both the path's number and the index of its counter. When paths are looked up, a path is known if the
    /// [`PathEndCounterMapping`] gives it a counter of its own (thesis, section 3.5.1).
    Preferential(PathEndCounterMapping),
}

impl CounterCells {
    /// Returns whether the path with this sum is known, or `None` if that does not follow from the sum.
    pub(super) fn is_known(&self, sum: i64) -> Option<bool> {
        match self {
            CounterCells::Preferential(ending) => Some(ending.counter_of(sum) + 1 < ending.counter_count()),
            _ => None,
        }
    }
}

/// Counters of interesting paths.
#[derive(Clone, Debug)]
pub struct InterestingPathCells {
    /// How the sum determines the counter.
    pub ending: PathEndCounterMapping,
    /// Pairs of a counter and the number of the interesting path that it counts, ascending. All other counters count uninteresting paths.
    pub paths: Vec<(u64, u64)>,
    /// How many uninteresting paths are counted by the counter of an interesting path.
    pub aliases: UninterestingPathAliases,
    /// Whether the numbering was verified for all paths. If false, it was only tested on some paths.
    pub proven: bool,
}
