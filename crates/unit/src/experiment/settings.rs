//! Settings of a build as users write them: a flat list of optional entries. Settings may contradict each other;
//! [`Experiment::new`](super::Experiment::new) detects that. Parsing settings does not read the files that they name.

use super::axes::{DominantIteration, ExperimentScheme, Reach, ThreadCounters, TripCounts};
use crate::observe::Observe;
use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// Default maximum number of paths of a function. The function's counters then take at most 32 KB. Few functions have more paths.
pub const DEFAULT_MAX_PATHS: u64 = 4096;
/// Default time limit, in seconds, for finding the most compact numbering of a function's paths.
pub(crate) const DEFAULT_TIME_LIMIT_S: u64 = 2;

/// An input file of a build.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SettingsFile {
    /// Path of a file that the user named.
    File(PathBuf),
    /// Identity of a file that is already in an [`InputFolder`](super::InputFolder).
    Stored(Identity),
}

impl SettingsFile {
    /// Returns the identity; `None` if the file is given by its path.
    pub fn stored(&self) -> Option<Identity> {
        match self {
            SettingsFile::Stored(identity) => Some(*identity),
            SettingsFile::File(_) => None,
        }
    }
}

macro_rules! settings {
    ($($(#[$about:meta])* $field:ident: $kind:ty,)*) => {
        /// Settings of a build. `None` means that the user has not given the setting.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Settings {
            $($(#[$about])* pub $field: Option<$kind>,)*
        }

        impl Settings {
            /// Combines these settings with `others`. If both have a value for a setting, that of `self` is used.
            pub fn or(self, others: Settings) -> Settings {
                Settings { $($field: self.$field.or(others.$field),)* }
            }
        }
    };
}

settings! {
    /// Numbering of paths.
    scheme: ExperimentScheme,
    /// Maximum number of paths of a function. If a function has more, its paths are divided at cut edges.
    max_paths: u64,
    /// Number of slots of each hash table; 0 if no hash tables are used.
    table_slots: u64,
    /// Maximum number of paths of a function that uses an array, although hash tables are requested.
    array_paths: u64,
    /// Which counters a thread increments: its own, or shared ones.
    threads: ThreadCounters,
    /// Whether increments are placed on the chords of a spanning tree.
    chords: bool,
    /// Which loops are counted once by their trip count, instead of at every iteration.
    trip_counts: TripCounts,
    /// Whether paths may be counted before they end, at joins of the graph.
    early: bool,
    /// How the most frequent iteration of a short loop is counted.
    dominant_iteration: DominantIteration,
    /// At which calls the path up to the call is counted.
    reach: Reach,
    /// When paths are observed.
    when: ObservationTiming,
    /// What is observed.
    observe: Observe,
    /// Event to sum for each path, in addition to counting the path.
    events: EventSource,
    /// Whether code generation may merge equal ends of blocks.
    tail_merging: bool,
    /// Measured edge frequencies, by which probes are placed.
    weights: SettingsFile,
    /// Known paths. Only other paths are counted.
    known: SettingsFile,
    /// All paths except the watched ones, which are the only paths that are counted.
    watched: SettingsFile,
    /// Interesting paths. Only these are counted.
    interesting: SettingsFile,
    /// Set of segments (paths across calls) that are counted instead of paths.
    segments: SettingsFile,
    /// Set of paths over iterations (sequences of consecutive paths) that are counted instead of paths.
    iterations: SettingsFile,
    /// Time limit for finding a numbering of a function's paths, in seconds.
    time_limit_s: u64,
    /// The part of the paths that an instrumented copy of a program counts.
    part: SettingsFile,
    /// The unit of the original program from which a unit of the copy is made.
    origin: Identity,
    /// Whether an instrumented copy also counts how often its probes are executed.
    count_hits: bool,
    /// Plan for transforming the program's code. If there is one, nothing is observed.
    apply: SettingsFile,
    /// Which data about a unit is stored in its object file.
    keep: Keep,
    /// Default pattern for the names of a flight recorder's files. When the program runs, an environment variable overrides it.
    recorder: OsString,
}

/// When paths are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObservationTiming {
    /// All the time.
    #[default]
    Always,
    /// Only while a switch outside the program is on. The program has code that checks the switch, and a duplicate of each function, which
    /// counts (Arnold and Ryder's sampling framework).
    Bursts,
}

/// Which data about a unit is stored in its object file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Keep {
    /// Map and bitcode.
    #[default]
    Bitcode,
    /// Only the map.
    Map,
}
