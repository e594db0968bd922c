//! The kinds of observations that a build can make ([`Observation`]), with a module for each.
//!
//! An [`ObservationKind`] describes how users request the kind, which other kinds restrict it, and which numberings, tables and shared
//! counters it supports. [`ObservationProperties`] describes one observation. The module with the same name in `trodden-instrument`
//! changes the code, and the one in `trodden-profile` explains why counts are inexact. A new kind requires a module, an entry in
//! [`kinds`], and possibly a value of [`Observe`].

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
pub use unknown::{Recognition, UnknownPaths};
pub use watched::WatchedPaths;
pub use words::Observe;

use crate::Identity;
use crate::events::CELLS_PER_COUNTER;
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
            /// Returns the kind-specific description of the observation.
            pub fn observed(&self) -> &dyn ObservationProperties {
                match self {
                    $(Observation::$kind(observed) => observed,)*
                }
            }
        }

        /// All kinds. If two conflicting kinds are requested, the error names the earlier one first.
        pub static KINDS: &[&ObservationKind] = &[$(&$module::KIND,)*];
    };
}

kinds! {
    /// Each path's count, and the sum of an event over the path's executions.
    sums::EventSums,
    /// Counts of all paths. LLVM's edge profile is computed from them.
    edge_profile::EdgeProfileCounts,
    /// Counts of all paths. The counters of source-based coverage (clang's, rustc's) are computed from them.
    coverage::CoverageCounts,
    /// The sequence of paths and calls. Counts are computed from it.
    stream::PathStream,
    /// Addresses of blocks, to translate hardware-recorded branches to paths. Nothing is counted.
    addresses::BlockAddresses,
    /// Nothing. A tracer follows the execution from outside, with the help of sleds in the blocks.
    sleds::TraceSleds,
    /// Counts of all paths, while a switch outside the program is on.
    bursts::CountsInBursts,
    /// Counts of interprocedural segments instead of paths.
    segments::SegmentCounts,
    /// Counts of paths over iterations instead of paths.
    iterations::IterationCounts,
    /// Counts of the paths in a set. A function's other paths are counted together.
    interesting::InterestingPaths,
    /// Counts of all paths except the paths in a set (a residual build).
    unknown::UnknownPaths,
    /// Counts of the watched paths.
    watched::WatchedPaths,
    /// Counts of the paths that are assigned to a copy of a program.
    part::CopyPart,
    /// Counts of all paths.
    every_path::EveryPath,
}

/// A kind of observation: how users request it, and which settings it can be combined with.
pub struct ObservationKind {
    /// The option. The text includes the setting if there is no option, or if the setting's name is different.
    pub option: &'static str,
    /// What is observed, as a noun phrase for messages.
    pub observes: &'static str,
    /// Advice if a conflicting kind is requested as well; `None` to advise two builds.
    pub(crate) conflict_remedy: Option<&'static str>,
    /// Returns whether settings request this kind.
    pub(crate) is_requested: fn(&Settings) -> bool,
    /// Returns the observation that settings describe; `None` if a required setting is missing.
    pub(crate) read: fn(&Settings) -> Result<Option<Observation>, ExperimentError>,
    /// Kinds that may restrict this kind. If such a kind is requested as well, only the paths that it selects are observed.
    pub(crate) restricted_by: &'static [&'static ObservationKind],
    /// The supported numberings, in addition to the numbering of all paths.
    pub(crate) numberings: &'static [NumberingScheme],
    /// Whether this kind rejects other numberings. If it admits them, they are checked as if no kind had been requested.
    pub(crate) other_numberings: Admission,
    /// Whether functions with many paths may count in tables.
    pub(crate) tables: Admission,
    /// Whether threads may share counters.
    pub(crate) shared_counters: Admission,
    /// Rules for settings of this kind.
    pub(crate) rules: &'static [FeatureRule],
}

/// Whether a kind of observation supports a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The feature is supported.
    Admitted,
    /// The feature is not supported.
    Rejected {
        /// The reason.
        reason: &'static str,
        /// Advice, as an imperative clause.
        remedy: &'static str,
    },
}

/// Properties of an observation, implemented for each kind.
pub trait ObservationProperties {
    /// Returns the kind of the observation.
    fn kind(&self) -> &'static ObservationKind;

    /// Sets the settings that request the observation.
    fn write(&self, settings: &mut Settings);

    /// Returns the numbering of paths.
    fn scheme(&self) -> ExperimentScheme {
        ExperimentScheme::BallLarus
    }

    /// Returns the meaning of a counter's words.
    fn words(&self) -> CounterWords {
        CounterWords::Count
    }

    /// Returns the file of the paths that are not counted, if all other paths are counted.
    fn uncounted(&self) -> Option<Identity> {
        None
    }

    /// Returns the set of paths to which the observation is restricted, if any.
    fn interesting(&self) -> Option<InterestingPaths> {
        None
    }
}

/// Meaning of a counter's words in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterWords {
    /// A count.
    Count,
    /// A count and the time of the first execution. The times of all counters follow the counts of all counters.
    CountAndTime,
    /// Cells for the count, the sum, and the sum of squares ([`crate::events`]).
    Cells,
    /// The counter has no words.
    Nothing,
}

impl CounterWords {
    /// Returns the number of words per counter.
    pub fn words_per_counter(self) -> u64 {
        match self {
            CounterWords::Count => 1,
            CounterWords::CountAndTime => 2,
            CounterWords::Cells => CELLS_PER_COUNTER,
            CounterWords::Nothing => 0,
        }
    }
}

impl ObservationKind {
    pub(crate) fn is(&self, other: &ObservationKind) -> bool {
        std::ptr::eq(self, other)
    }

    /// Returns whether both kinds may be requested, because they are the same or one restricts the other.
    pub(crate) fn can_combine_with(&self, other: &ObservationKind) -> bool {
        let restricts = |by: &ObservationKind, of: &ObservationKind| of.restricted_by.iter().any(|kind| kind.is(by));
        self.is(other) || restricts(self, other) || restricts(other, self)
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

/// Returns the observation that settings request. The settings must have been checked for conflicts.
pub(crate) fn observation_of(settings: &Settings) -> Result<Observation, ExperimentError> {
    let restricts = |kind: &ObservationKind| requested_kinds(settings).any(|other| other.restricted_by.iter().any(|by| by.is(kind)));
    let kind = requested_kinds(settings).find(|kind| !restricts(kind));
    let observation = kind.map(|kind| (kind.read)(settings)).transpose()?.flatten();
    Ok(observation.unwrap_or(Observation::EveryPath(EveryPath)))
}
