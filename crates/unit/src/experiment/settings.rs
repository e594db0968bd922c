//! Settings of a build as users write them: a flat list of optional entries. Settings may contradict each other;
//! [`Experiment::new`](super::Experiment::new) reports that. Parsing settings does not read the files that they name.

use super::axes::{DominantIteration, ExperimentScheme, Reach, ThreadCounters, TripCounts};
use crate::observe::Observe;
use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// Default maximum number of paths of a function. Its counters then take at most 32 KB, and few functions have as many paths.
pub const DEFAULT_MAX_PATHS: u64 = 4096;
/// Default time limit for finding the most compact numbering of a function, in seconds.
pub(crate) const DEFAULT_TIME_LIMIT_S: u64 = 2;

/// An input file of a build.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SettingsFile {
    /// The path of the user's file.
    File(PathBuf),
    /// The identity of a file in an [`InputFolder`](super::InputFolder).
    Stored(Identity),
}

impl SettingsFile {
    /// Returns the identity. `None` if the file is given by its path.
    pub fn stored(&self) -> Option<Identity> {
        match self {
            SettingsFile::Stored(identity) => Some(*identity),
            SettingsFile::File(_) => None,
        }
    }
}

macro_rules! settings {
    ($($(#[$about:meta])* $field:ident: $kind:ty,)*) => {
        /// Settings of a build; `None` means that a setting is not given.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Settings {
            $($(#[$about])* pub $field: Option<$kind>,)*
        }

        impl Settings {
            /// Combines these settings with `others`. If both give a setting, the value from `self` is used.
            pub fn or(self, others: Settings) -> Settings {
                Settings { $($field: self.$field.or(others.$field),)* }
            }
        }
    };
}

settings! {
    /// Numbering of paths.
    scheme: ExperimentScheme,
    /// Maximum number of paths of a function. In functions with more, paths are cut.
    max_paths: u64,
    /// Number of slots of each hash table; 0 if no tables are used.
    table_slots: u64,
    /// Maximum number of paths of a function that uses an array although tables are requested.
    array_paths: u64,
    /// Which counters a thread increments.
    threads: ThreadCounters,
    /// Whether probes are placed on the chords of a spanning tree.
    chords: bool,
    /// Which loops are counted by their trip count.
    trip_counts: TripCounts,
    /// Whether paths are counted early, at joins.
    early: bool,
    /// How the dominant iteration of a short loop is counted.
    dominant_iteration: DominantIteration,
    /// At which calls the path up to the call is counted.
    reach: Reach,
    /// When paths are observed.
    when: Timing,
    /// What is observed.
    observe: Observe,
    /// Event to sum for each path.
    events: EventSource,
    /// Whether code generation may merge equal tails of blocks.
    tail_merging: bool,
    /// Measured edge frequencies.
    weights: SettingsFile,
    /// Known paths. Only other paths are counted.
    known: SettingsFile,
    /// All paths except the watched ones.
    watched: SettingsFile,
    /// Interesting paths. Only these are counted.
    interesting: SettingsFile,
    /// Interprocedural segments, which are counted instead of paths.
    segments: SettingsFile,
    /// Paths over iterations, which are counted instead of paths.
    iterations: SettingsFile,
    /// Time limit for finding a numbering, in seconds.
    time_limit_s: u64,
    /// The part of the paths that a copy of a program counts.
    part: SettingsFile,
    /// The unit of the original program that a copy's unit is made from.
    origin: Identity,
    /// Whether executions of a copy's probes are counted.
    count_hits: bool,
    /// Transformation plan to apply. Nothing is observed then.
    apply: SettingsFile,
    /// Which data about a unit the object file contains.
    keep: Keep,
    /// Default pattern for the file names of a stream's flight recorder. An environment variable may override it when the program runs.
    recorder: OsString,
}

/// When paths are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timing {
    /// All the time.
    #[default]
    Always,
    /// While a switch outside the program is on (Arnold and Ryder's sampling framework: code that checks the switch, and a duplicate that
    /// counts).
    Bursts,
}

/// Which data about a unit the object file contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Keep {
    /// Map and bitcode.
    #[default]
    Bitcode,
    /// Only the map.
    Map,
}
