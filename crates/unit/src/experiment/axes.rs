//! Properties of an [`Experiment`](super::Experiment) other than what it observes: where counts are stored, whether threads share counters,
//! and how probes are placed.

use crate::Identity;
use serde::{Deserialize, Serialize};

/// Where counts are stored while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputDestination {
    /// In arrays with one word for each path. If a function has more than [`ProbePlacement::max_paths`] paths, its paths are divided at cut
    /// edges.
    Array,
    /// In open-addressing hash tables, for functions with many paths. Functions with few paths use arrays.
    Table {
        /// Number of slots of each table.
        slots: u64,
        /// Maximum number of paths of a function that uses an array.
        array_paths: u64,
    },
}

/// Which counters a thread increments: its own, or shared ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ThreadCounters {
    /// Counters that belong to the thread.
    #[default]
    Own,
    /// Counters that all threads share, incremented atomically.
    Atomic,
}

/// Where paths are divided, and how probes are placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbePlacement {
    /// Maximum number of paths of a function. If a function has more, its paths are divided at cut edges.
    pub max_paths: u64,
    /// Whether increments of the path register are placed on the chords of a spanning tree, instead of on all edges whose value is not
    /// zero.
    pub chords: bool,
    /// Which loops are counted once by their trip count, instead of at every iteration.
    pub trip_counts: TripCounts,
    /// Whether paths may be counted before they end, at a join of the graph, so that the path register is free for the rest of the path.
    pub early: bool,
    /// How the most frequent iteration of a short loop is counted.
    pub dominant_iteration: DominantIteration,
    /// At which calls the path up to the call is counted, in case the call does not return.
    pub reach: Reach,
    /// File of measured edge frequencies, from which better places for probes follow.
    pub weights: Option<Identity>,
}

/// Which loops are counted once, by their trip count, when control leaves the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TripCounts {
    /// No loops.
    Off,
    /// Loops of only a few instructions, and loops whose trip count is constant or is computed by the program anyway.
    #[default]
    Tight,
    /// All loops that have enough iterations.
    On,
}

/// How the dominant (most frequent) iteration of a short loop is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DominantIteration {
    /// By the same instruction that counts all other iterations.
    Shared,
    /// By an instruction that counts only this iteration.
    #[default]
    Split,
}

/// A numbering of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExperimentScheme {
    /// All acyclic paths.
    #[default]
    BallLarus,
    /// Interesting paths only, numbered by one of the schemes in [`trodden_flow::numbering`].
    Interesting(trodden_flow::NumberingScheme),
}

/// At which calls the path up to the call is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// At calls that may not return.
    #[default]
    MayNotReturn,
    /// At calls that may not return, and at calls to functions that the same unit defines. Builds that record streams always count at
    /// these.
    Calls,
    /// At all calls.
    All,
}
