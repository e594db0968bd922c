//! Settings of a build as users write them: a flat list, each entry of which is optional. Contradictory settings can be expressed, so that
//! [`Experiment::new`](super::Experiment::new) can explain the conflict. Parsing reads no input file.

use super::axes::{DominantIteration, ExperimentScheme, Reach, Threads, TripCounts};
use crate::observe::Observe;
use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// Default maximum number of paths of a function: counters take at most 32 KB per function, and few functions reach that.
pub const DEFAULT_MAX_PATHS: u64 = 4096;
/// Default time limit for finding the most compact numbering of a function, in seconds.
pub(crate) const DEFAULT_TIME_LIMIT_S: u64 = 2;

/// An input file of a build.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SettingsFile {
    /// Given by its path.
    File(PathBuf),
    /// Given by its content, in an [`InputFolder`](super::InputFolder).
    Stored(Identity),
}

impl SettingsFile {
    /// The identity, if known.
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
            /// Combines these settings with others; these take precedence.
            pub fn or(self, others: Settings) -> Settings {
                Settings { $($field: self.$field.or(others.$field),)* }
            }
        }
    };
}

settings! {
    /// Numbering of paths.
    scheme: ExperimentScheme,
    /// Maximum number of paths of a function; functions with more are cut.
    max_paths: u64,
    /// Number of slots of each table; 0: no tables.
    table_slots: u64,
    /// Maximum number of paths of a function that counts in an array although there are tables.
    array_paths: u64,
    /// Which counters a thread increments.
    threads: Threads,
    /// Whether probes are placed on the chords of a spanning tree.
    chords: bool,
    /// Which loops are counted by their trip count.
    trip_counts: TripCounts,
    /// Whether paths are counted early.
    early: bool,
    /// How the dominant iteration of a short loop is counted.
    dominant_iteration: DominantIteration,
    /// Which calls are counted when they are reached.
    reach: Reach,
    /// When paths are observed.
    when: Timing,
    /// What is observed.
    observe: Observe,
    /// Event to sum for each path.
    events: EventSource,
    /// Whether code generation may merge equal tails of blocks.
    tail_merging: bool,
    /// Measured frequencies.
    weights: SettingsFile,
    /// Known paths; all others are counted.
    known: SettingsFile,
    /// All paths except the watched ones.
    watched: SettingsFile,
    /// Interesting paths; only these are counted.
    interesting: SettingsFile,
    /// Interprocedural segments, which are counted instead of paths.
    segments: SettingsFile,
    /// Time limit for finding a numbering, in seconds.
    time_limit_s: u64,
    /// The part that one of several copies counts.
    part: SettingsFile,
    /// The unit that a copy's unit is made from.
    origin: Identity,
    /// Whether executions of a copy's probes are counted.
    count_hits: bool,
    /// Plan of transformations to apply; then nothing is observed.
    apply: SettingsFile,
    /// What to keep of a unit.
    keep: Keep,
    /// Default pattern for the files of a stream's flight recorder, unless a variable overrides it when the program runs.
    recorder: OsString,
}

/// When paths are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timing {
    /// All the time.
    #[default]
    Always,
    /// While a switch outside the program is on (Arnold and Ryder's sampling framework: checking code, and a duplicate that counts).
    Bursts,
}

/// What to keep of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Keep {
    /// Map and bitcode.
    #[default]
    Bitcode,
    /// Only the map.
    Map,
}
