//! Properties of an [`Experiment`](super::Experiment) besides what it observes: where counts are kept, by whom, and how probes are placed.

use crate::Identity;
use serde::{Deserialize, Serialize};

/// Where counts are kept while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputDestination {
    /// A word for each path. Functions with more than [`ProbePlacement::max_paths`] paths are cut.
    Array,
    /// An open-addressing table for functions with many paths.
    Table {
        /// Number of slots.
        slots: u64,
        /// Maximum number of paths of a function that counts in an array instead.
        array_paths: u64,
    },
}

/// Which counters a thread increments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Threads {
    /// Its own.
    #[default]
    Own,
    /// Counters that all threads share, by atomic increments.
    Atomic,
}

/// Where paths are cut, and how probes are placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbePlacement {
    /// Maximum number of paths of a function; functions with more are cut.
    pub max_paths: u64,
    /// Whether increments are placed on the chords of a spanning tree, instead of on every edge with a value.
    pub chords: bool,
    /// Which loops are counted by their trip count.
    pub trip_counts: TripCounts,
    /// Whether paths are counted early, at joins, if that frees the path register.
    pub early: bool,
    /// How the dominant iteration of a short loop is counted.
    pub dominant_iteration: DominantIteration,
    /// Which calls are counted when they are reached.
    pub reach: Reach,
    /// File of measured frequencies that guide the placement.
    pub weights: Option<Identity>,
}

/// Which loops are counted by their trip count, once when they are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TripCounts {
    /// None.
    Off,
    /// Loops of a few instructions, and those whose trip count is constant or maintained by the program.
    #[default]
    Tight,
    /// All loops that iterate often enough.
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

/// Which calls are counted when they are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// Calls that may not return.
    #[default]
    MayNotReturn,
    /// Those, and calls of functions that the unit defines. Streams have at least these.
    Calls,
    /// All calls.
    All,
}
