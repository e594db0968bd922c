//! Properties of an [`Experiment`](super::Experiment) besides what it observes: where counts are stored, whether threads share counters,
//! and how probes are placed.

use crate::Identity;
use serde::{Deserialize, Serialize};

/// Where counts are stored while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputDestination {
    /// In arrays with a word for each path. The paths of functions with more than [`ProbePlacement::max_paths`] paths are cut.
    Array,
    /// In open-addressing hash tables, for functions with many paths.
    Table {
        /// Number of slots of a table.
        slots: u64,
        /// Maximum number of paths of a function that uses an array instead.
        array_paths: u64,
    },
}

/// Which counters a thread increments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ThreadCounters {
    /// The thread's own counters.
    #[default]
    Own,
    /// Counters that all threads share, incremented atomically.
    Atomic,
}

/// Where paths are cut, and how probes are placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbePlacement {
    /// Maximum number of paths of a function. In functions with more, paths are cut.
    pub max_paths: u64,
    /// Whether increments are placed on the chords of a spanning tree, instead of on all edges with a nonzero value.
    pub chords: bool,
    /// Which loops are counted by their trip count.
    pub trip_counts: TripCounts,
    /// Whether paths are counted early, at joins, if the path register is then free for the rest of the path.
    pub early: bool,
    /// How the dominant iteration of a short loop is counted.
    pub dominant_iteration: DominantIteration,
    /// At which calls the path up to the call is counted.
    pub reach: Reach,
    /// File of measured edge frequencies, which guide where probes are placed.
    pub weights: Option<Identity>,
}

/// Which loops are counted once, by their trip count, when control leaves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TripCounts {
    /// No loops.
    Off,
    /// Loops of a few instructions, and loops whose trip count is constant or is computed by the program itself.
    #[default]
    Tight,
    /// All loops with enough iterations.
    On,
}

/// How the dominant iteration of a short loop is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DominantIteration {
    /// By the same instruction as all other iterations.
    Shared,
    /// By an instruction of its own.
    #[default]
    Split,
}

/// A numbering of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExperimentScheme {
    /// All acyclic paths.
    #[default]
    BallLarus,
    /// Interesting paths, by one of the numberings of [`trodden_flow::numbering`].
    Interesting(trodden_flow::NumberingScheme),
}

/// At which calls the path up to the call is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// At calls that may not return.
    #[default]
    MayNotReturn,
    /// At calls that may not return, and at calls of functions that the unit defines. Streams always contain these.
    Calls,
    /// At all calls.
    All,
}
