//! The kinds of observations that a build can make ([`Observation`]), with a module for each kind.
//!
//! An [`ObservationKind`] describes how users request the kind, which other kinds restrict it, and whether it supports other path
//! numberings, hash tables and shared counters. [`ObservationProperties`] describes a single observation. The module with the same name in
//! `trodden-instrument` changes the code, and the one in `trodden-profile` explains why counts are inexact. A new kind requires a module,
//! an entry in [`KINDS`], and possibly a value of [`Observe`].

mod addresses;
mod bursts;
mod coverage;
mod edge_profile;
mod every_path;
mod interesting;
mod iterations;
mod part;
mod segments;
mod sleds;
mod stream;
mod sums;
mod unknown;
mod watched;
mod words;

pub use addresses::BlockAddresses;
pub use bursts::CountsInBursts;
pub use coverage::CoverageCounts;
pub use edge_profile::EdgeProfileCounts;
pub use every_path::EveryPath;
pub use interesting::{InterestingPaths, InterestingWords, StorageAliases};
pub use iterations::{IterationCounts, IterationWords};
pub use part::{CopyPart, LabelWords};
pub use segments::{CallerPath, SegmentCounts, SegmentNumbering, SegmentWords, UnplacedCall};
pub use sleds::TraceSleds;
pub use stream::{EventWords, PathStream};
pub use sums::EventSums;
pub use unknown::{KnownPathRecognition, UnknownPaths};
pub use watched::WatchedPaths;
pub use words::Observe;

use crate::Identity;
use crate::events::EVENT_CELLS_PER_COUNTER;
use crate::experiment::{ExperimentError, ExperimentScheme, FeatureRule, Settings};
use std::fmt;
use trodden_flow::NumberingScheme;

macro_rules! kinds {
    ($($(#[$about:meta])* $module:ident::$kind:ident,)*) => {
        /// What a build observes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Observation {
            $($(#[$about])* $kind($kind),)*
        }

        impl Observation {
            /// Returns the properties of the observation, which depend on its kind.
            pub fn observation_properties(&self) -> &dyn ObservationProperties {
                match self {
                    $(Observation::$kind(observed) => observed,)*
                }
            }
        }

        /// All kinds of observations. If a user requests two conflicting kinds, the error message names the one first that is earlier in
        /// this list.
        pub static KINDS: &[&ObservationKind] = &[$(&$module::KIND,)*];
    };
}

kinds! {
    /// The count of each path, and the sum of an event over the path's executions.
    sums::EventSums,
    /// Counts of all paths, from which LLVM's edge profile is computed.
    edge_profile::EdgeProfileCounts,
    /// Counts of all paths, from which the counters of source-based coverage (of clang or rustc) are computed.
    coverage::CoverageCounts,
    /// The sequence of paths and calls, from which counts are computed.
    stream::PathStream,
    /// Addresses of blocks, by which branches that the hardware records are translated to paths. Nothing is counted.
    addresses::BlockAddresses,
    /// Nothing. A tracer follows the execution from outside the program, with the help of sleds (patchable instructions) in the blocks.
    sleds::TraceSleds,
    /// Counts of all paths, but only while a switch outside the program is on.
    bursts::CountsInBursts,
    /// Counts of segments (paths across calls) instead of paths.
    segments::SegmentCounts,
    /// Counts of paths over iterations (sequences of consecutive paths) instead of paths.
    iterations::IterationCounts,
    /// Counts of the interesting paths in a set. The other paths of a function are counted together.
    interesting::InterestingPaths,
    /// Counts of all paths except the known paths in a set. This is a residual build.
    unknown::UnknownPaths,
    /// Counts of watched paths, which an expression selects.
    watched::WatchedPaths,
    /// Counts of the paths that are assigned to an instrumented copy of a program.
    part::CopyPart,
    /// Counts of all paths.
    every_path::EveryPath,
}

/// A kind of observation: how users request it, and with which settings it can be combined.
pub struct ObservationKind {
    /// The command-line option that requests this kind. The setting is added to the text if it has a different name, or replaces the option
    /// if there is none.
    pub option: &'static str,
    /// What is observed, worded as a noun phrase for messages.
    pub observes: &'static str,
    /// What the user can do if a conflicting kind is requested, too; `None` for the advice to make two builds.
    pub(crate) conflict_remedy: Option<&'static str>,
    /// Returns whether the settings request this kind.
    pub(crate) is_requested: fn(&Settings) -> bool,
    /// Returns the observation that the settings describe; `None` if a required setting is missing.
    pub(crate) read: fn(&Settings) -> Result<Option<Observation>, ExperimentError>,
    /// Kinds that may be requested together with this one. They restrict the observation to the paths that they select.
    pub(crate) restricted_by: &'static [&'static ObservationKind],
    /// Path numberings that this kind supports, in addition to the numbering of all paths.
    pub(crate) numberings: &'static [NumberingScheme],
    /// Whether this kind supports other path numberings. If it does, they are checked as if no kind had been requested.
    pub(crate) other_numberings: FeatureAdmission,
    /// Whether functions with many paths may count in hash tables.
    pub(crate) tables: FeatureAdmission,
    /// Whether several threads may share counters.
    pub(crate) shared_counters: FeatureAdmission,
    /// Further rules about settings of this kind.
    pub(crate) rules: &'static [FeatureRule],
}

/// Whether a kind of observation supports a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureAdmission {
    /// The feature is supported.
    Admitted,
    /// The feature is not supported.
    Rejected {
        /// The reason.
        reason: &'static str,
        /// What the user can do, worded as an imperative clause.
        remedy: &'static str,
    },
}

/// Properties of an observation, which depend on its kind.
pub trait ObservationProperties {
    /// Returns the kind of the observation.
    fn kind(&self) -> &'static ObservationKind;

    /// Changes the settings so that they request the observation.
    fn write_to_settings(&self, settings: &mut Settings);

    /// Returns how paths are numbered.
    fn scheme(&self) -> ExperimentScheme {
        ExperimentScheme::BallLarus
    }

    /// Returns what the words of a counter mean.
    fn counter_words(&self) -> CounterWords {
        CounterWords::Count
    }

    /// Returns the file of paths that are not counted, if all other paths are counted.
    fn uncounted_paths_file(&self) -> Option<Identity> {
        None
    }

    /// Returns the set of paths to which the observation is restricted; `None` if it is not restricted.
    fn interesting_paths(&self) -> Option<InterestingPaths> {
        None
    }
}

/// What the words of a counter in memory mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterWords {
    /// A count.
    Count,
    /// The count, and the time of the first execution. The times of all counters follow after the counts of all counters.
    CountAndTime,
    /// Cells with the count, the sum of an event and its sum of squares ([`crate::events`]).
    Cells,
    /// The counter has no words.
    Nothing,
}

impl CounterWords {
    /// Returns how many words in memory each counter has.
    pub fn words_per_counter(self) -> u64 {
        match self {
            CounterWords::Count => 1,
            CounterWords::CountAndTime => 2,
            CounterWords::Cells => EVENT_CELLS_PER_COUNTER,
            CounterWords::Nothing => 0,
        }
    }
}

impl ObservationKind {
    pub(crate) fn is_same_kind(&self, other: &ObservationKind) -> bool {
        std::ptr::eq(self, other)
    }

    /// Returns whether both kinds may be requested together, because they are the same or one restricts the other.
    pub(crate) fn can_combine_with(&self, other: &ObservationKind) -> bool {
        let restricts = |by: &ObservationKind, of: &ObservationKind| of.restricted_by.iter().any(|kind| kind.is_same_kind(by));
        self.is_same_kind(other) || restricts(self, other) || restricts(other, self)
    }
}

impl fmt::Debug for ObservationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.option)
    }
}

pub(crate) fn requested_kinds(settings: &Settings) -> impl Iterator<Item = &'static ObservationKind> + '_ {
    KINDS.iter().copied().filter(|kind| (kind.is_requested)(settings))
}

/// Returns the observation that settings request. The settings must already have been checked for conflicts.
pub(crate) fn observation_of(settings: &Settings) -> Result<Observation, ExperimentError> {
    let restricts =
        |kind: &ObservationKind| requested_kinds(settings).any(|other| other.restricted_by.iter().any(|by| by.is_same_kind(kind)));
    let kind = requested_kinds(settings).find(|kind| !restricts(kind));
    let observation = kind.map(|kind| (kind.read)(settings)).transpose()?.flatten();
    Ok(observation.unwrap_or(Observation::EveryPath(EveryPath)))
}
