//! What people ask of a build, as they say it: a flat list in which each entry may be left out.
//!
//! Settings know nothing of files' contents, and reading them from text reads no file. What contradicts itself can be
//! said here, so that [`Experiment::new`](super::Experiment::new) can say why it makes no sense.

use super::axes::{DominantIteration, ExperimentScheme, Reach, Threads, TripCounts};
use crate::observe::Observe;
use crate::{EventSource, Identity};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// Functions with more paths than this are cut. 4096 counters are a page of 32 KB per function at most, and few functions reach it.
pub const DEFAULT_MAX_PATHS: u64 = 4096;
/// How long the most compact numbers of a function are searched for.
pub(crate) const DEFAULT_TIME_LIMIT_S: u64 = 2;

/// A file that a build reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SettingsFile {
    /// By its name.
    File(PathBuf),
    /// By its content, in an [`InputFolder`].
    Stored(Identity),
}

impl SettingsFile {
    /// Its identity, if it is known.
    pub fn stored(&self) -> Option<Identity> {
        match self {
            SettingsFile::Stored(identity) => Some(*identity),
            SettingsFile::File(_) => None,
        }
    }
}

macro_rules! settings {
    ($($(#[$about:meta])* $field:ident: $kind:ty,)*) => {
        /// What is asked of a build. `None`: nothing is said about it.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Settings {
            $($(#[$about])* pub $field: Option<$kind>,)*
        }

        impl Settings {
            /// These settings over others: where both say something, these win.
            pub fn over(self, others: Settings) -> Settings {
                Settings { $($field: self.$field.or(others.$field),)* }
            }
        }
    };
}

settings! {
    /// Numbering of paths.
    scheme: ExperimentScheme,
    /// Most paths of a function; others are cut.
    max_paths: u64,
    /// Slots of tables; 0: there are no tables.
    table_slots: u64,
    /// Most paths of a function that counts in an array, where there are tables.
    array_paths: u64,
    /// Whose counters a thread increments.
    threads: Threads,
    /// Probes are on chords of a spanning tree.
    chords: bool,
    /// Loops that are counted by their trip count.
    trip_counts: TripCounts,
    /// Counts are made early.
    early: bool,
    /// What counts the dominant iteration of a short loop.
    dominant_iteration: DominantIteration,
    /// Calls at which it is counted that they were reached.
    reach: Reach,
    /// When paths are observed.
    when: Timing,
    /// What is observed.
    observe: Observe,
    /// The event to sum up for each path.
    events: EventSource,
    /// Code generation may merge equal ends of blocks.
    tail_merging: bool,
    /// Measured frequencies.
    weights: SettingsFile,
    /// Paths that are known: all others are counted.
    known: SettingsFile,
    /// All paths but those that are watched for.
    watched: SettingsFile,
    /// Paths that are interesting: only these are counted.
    interesting: SettingsFile,
    /// Interprocedural segments: these are counted in the place of paths.
    segments: SettingsFile,
    /// How long numbers are searched for, in seconds.
    time_limit_s: u64,
    /// The part of one of several copies.
    part: SettingsFile,
    /// The unit of which a copy's unit is made.
    origin: Identity,
    /// Executions of a copy's probes are counted.
    count_hits: bool,
    /// A plan of transformations: carry it out, and observe nothing.
    apply: SettingsFile,
    /// What is kept of a unit.
    keep: Keep,
    /// Where the flight recorder of a program that writes a stream keeps it, if no variable says so when it runs: a pattern of files.
    recorder: OsString,
}

/// When paths are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timing {
    /// While the program runs.
    #[default]
    Always,
    /// While a switch outside the program is on: checking code, and a duplicate that counts (Arnold and Ryder's sampling framework).
    Bursts,
}

/// What is kept of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Keep {
    /// Map and bitcode.
    #[default]
    Bitcode,
    /// The map alone.
    Map,
}
