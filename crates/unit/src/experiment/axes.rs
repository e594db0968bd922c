//! The axes of an [`Experiment`](super::Experiment): which paths, what of them, when, where to; and how probes are placed.

use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};

/// Which paths are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Paths {
    /// All acyclic paths (Ball and Larus).
    All,
    /// Those of a set; all others of a function are counted together.
    Interesting {
        /// The file of the set.
        set: Identity,
        /// How they are numbered; `None`: all paths of the functions that the set names are counted.
        numbering: Option<trodden_flow::NumberingScheme>,
        /// How long [`trodden_flow::NumberingScheme::PppOptimal`] may search for the numbers of one function, in seconds.
        time_limit_s: u64,
    },
    /// All but the known ones: a residual build.
    Unknown {
        /// The file of the known paths.
        known: Identity,
        /// How they are recognised.
        by: Recognition,
    },
    /// Those that are watched for.
    Watched {
        /// The file of all other paths of the program.
        others: Identity,
    },
    /// Interprocedural segments of a set, in the place of paths.
    Segments {
        /// The file of the set.
        set: Identity,
        /// How they are numbered.
        numbering: SegmentNumbering,
    },
    /// Those that one of several copies of a program counts.
    Part(CopyPart),
}

/// What one of several copies of a program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyPart {
    /// The file of the copy's part.
    pub file: Identity,
    /// The unit of which this one is made, in the program whose counting is divided.
    pub origin: Identity,
    /// The file of the known paths, if the program counts unknown paths only.
    pub known: Option<Identity>,
    /// Executions of the copy's probes are counted, too.
    pub count_hits: bool,
}

/// What is observed of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Observation {
    /// How often each was taken.
    Counts,
    /// That, and the sum of an event.
    Sums(EventSource),
    /// That, in a form of which LLVM's edge profile can be made.
    EdgeProfile,
    /// That, in a form of which the counters of source-based coverage (clang's, rustc's) can be computed.
    Coverage {
        /// With the test vectors of decisions (MC/DC).
        mcdc: bool,
    },
    /// Their sequence, and that of calls; counts follow from it.
    Stream,
    /// Nothing: blocks are marked, so that branches which hardware recorded can be turned into paths.
    Addresses {
        /// Code generation may merge equal ends of blocks, which then have one address.
        merge_tails: bool,
    },
    /// How often each was taken in an execution that was followed from outside. What is built for it has sleds for witnesses in its
    /// blocks.
    Trace,
}

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

/// How a residual build recognises known paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recognition {
    /// By where control is: code of its own for known paths, which an edge outside of them leaves.
    #[default]
    Region,
    /// By the number at the path's end, as published: preferential numbering, checked against the Ball-Larus number.
    Preferential,
}

/// The numbering of interprocedural segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SegmentNumbering {
    /// Those of the set, one behind the other ([`trodden_flow::NumberingScheme::KnownTable`]).
    #[default]
    Minimal,
    /// Every path behind every context (Ball and Larus).
    BallLarus,
    /// As [`SegmentNumbering::Minimal`], found by precise selective labels of the paths that segments of the set have
    /// ([`trodden_flow::NumberingScheme::Pspp`]).
    PreciseSelective,
    /// Those of the set, by preferential numbering over contexts and paths, checked against the number of all.
    Preferential,
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
