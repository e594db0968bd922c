//! What an [`Experiment`](super::Experiment) has beside what it observes: where counts are kept, whose they are, and how probes are placed.

use crate::Identity;
use serde::{Deserialize, Serialize};

/// Where counts are kept while the program runs. (A ring, for streams, will be a variant.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputDestination {
    /// A word for each path. Functions with more than [`ProbePlacement::max_paths`] paths are cut.
    Array,
    /// An open-addressing table for functions with many paths.
    Table {
        /// Its slots.
        slots: u64,
        /// Most paths of a function that counts in an array.
        array_paths: u64,
    },
}

/// Whose counters a thread increments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Threads {
    /// Its own.
    #[default]
    Own,
    /// All threads', by atomic increments.
    Atomic,
}

/// Where paths are cut and probes go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbePlacement {
    /// Functions with more paths than this are cut.
    pub max_paths: u64,
    /// Increments are on the chords of a spanning tree rather than on every edge with a value.
    pub chords: bool,
    /// Which loops are counted by their trip count.
    pub trip_counts: TripCounts,
    /// Counts are made early, at joins, where that saves the register.
    pub early: bool,
    /// What counts the dominant iteration of a short loop.
    pub dominant_iteration: DominantIteration,
    /// At which calls it is counted that they were reached.
    pub reach: Reach,
    /// The file of measured frequencies, by which probes are placed.
    pub weights: Option<Identity>,
}

/// Which loops are counted by their trip count: once, at the loop's exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TripCounts {
    /// None.
    Off,
    /// Those of a few instructions, and those whose trip count is constant or counted by the program.
    #[default]
    Tight,
    /// All that iterate often enough.
    On,
}

/// What counts the dominant iteration of a short loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DominantIteration {
    /// The instruction that counts all other iterations, too.
    Shared,
    /// An instruction of its own.
    #[default]
    Split,
}

/// A numbering of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExperimentScheme {
    /// Every acyclic path has a number.
    #[default]
    BallLarus,
    /// Interesting paths, by one of the numberings of [`trodden_flow::numbering`].
    Interesting(trodden_flow::NumberingScheme),
}

/// Calls at which it is counted that they were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// Those that may not return.
    #[default]
    MayNotReturn,
    /// Those, and all of functions that the unit defines; so it is of streams at least.
    Calls,
    /// All.
    All,
}
