//! What a build observes: one kind of observation ([`Observation`]), with a module for each.
//!
//! A [`Kind`] says how users request it, which other kinds restrict it, and which numberings, tables and shared counters its builds may
//! have; [`ObservationProperties`] describes an observation. How a kind changes code is in the module of the same name in
//! `trodden-instrument`, what makes its counts inexact in that of `trodden-profile`. A new kind needs a module, a line in [`kinds`], and
//! possibly a value of [`Observe`].

mod addresses;
mod bursts;
mod coverage;
mod edge_profile;
mod every_path;
mod interesting;
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
pub use part::{CopyPart, LabelWords};
pub use segments::{CallerPath, SegmentCounts, SegmentNumbering, SegmentWords, UnplacedCall};
pub use sleds::TraceSleds;
pub use stream::{EventWords, PathStream};
pub use sums::EventSums;
pub use unknown::{Recognition, UnknownPaths};
pub use watched::WatchedPaths;
pub use words::Observe;

use crate::Identity;
use crate::events::CELLS;
use crate::experiment::{ExperimentError, ExperimentScheme, Rule, Settings};
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
            /// The kind-specific description of the observation.
            pub fn observed(&self) -> &dyn ObservationProperties {
                match self {
                    $(Observation::$kind(observed) => observed,)*
                }
            }
        }

        /// All kinds. If two are requested together, the error names the earlier one first.
        pub static KINDS: &[&Kind] = &[$(&$module::KIND,)*];
    };
}

kinds! {
    /// The count of each path, and the sum of an event.
    sums::EventSums,
    /// Counts of all paths, from which LLVM's edge profile can be computed.
    edge_profile::EdgeProfileCounts,
    /// Counts of all paths, from which the counters of source-based coverage (clang's, rustc's) can be computed.
    coverage::CoverageCounts,
    /// The sequence of paths and calls, which also gives counts.
    stream::PathStream,
    /// Nothing; blocks are marked, so that branches recorded by hardware can be translated to paths.
    addresses::BlockAddresses,
    /// Nothing; blocks have sleds for witnesses of an execution that is traced from outside.
    sleds::TraceSleds,
    /// Counts of all paths, while a switch outside the program is on.
    bursts::CountsInBursts,
    /// Counts of interprocedural segments instead of paths.
    segments::SegmentCounts,
    /// Counts of the paths of a set; all other paths of a function are counted together.
    interesting::InterestingPaths,
    /// Counts of all paths except those of a set: a residual build.
    unknown::UnknownPaths,
    /// Counts of the watched paths.
    watched::WatchedPaths,
    /// The part of the counts of one of several copies of a program.
    part::CopyPart,
    /// Counts of all paths.
    every_path::EveryPath,
}

/// A kind of observation: how users request it, and what it can be combined with.
pub struct Kind {
    /// The option, and the setting if there is no option or its name differs.
    pub option: &'static str,
    /// What is observed, as a noun phrase.
    pub observes: &'static str,
    /// What to do if another kind is requested as well; `None`: make two builds.
    pub(crate) conflict_remedy: Option<&'static str>,
    /// Returns whether settings request it.
    pub(crate) is_requested: fn(&Settings) -> bool,
    /// Returns the observation that settings describe; `None` if they lack something it needs.
    pub(crate) read: fn(&Settings) -> Result<Option<Observation>, ExperimentError>,
    /// Kinds that restrict it: requested together with one of them, it observes only what that one selects.
    pub(crate) restricted_by: &'static [&'static Kind],
    /// The numberings that it supports, besides that of all paths.
    pub(crate) numberings: &'static [NumberingScheme],
    /// Whether other numberings are refused by this kind. If admitted, they are handled as if no kind had been requested.
    pub(crate) other_numberings: Admission,
    /// Whether functions with many paths may count in tables.
    pub(crate) tables: Admission,
    /// Whether threads may share counters.
    pub(crate) shared_counters: Admission,
    /// Rules for its own settings.
    pub(crate) rules: &'static [Rule],
}

/// Whether a kind of observation admits something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Admitted,
    /// No.
    Refused {
        /// The reason.
        reason: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
}

/// Description of an observation by its kind.
pub trait ObservationProperties {
    /// Its kind.
    fn kind(&self) -> &'static Kind;

    /// Writes the settings that request it.
    fn write(&self, settings: &mut Settings);

    /// The numbering of paths.
    fn scheme(&self) -> ExperimentScheme {
        ExperimentScheme::BallLarus
    }

    /// Meaning of the words of a counter.
    fn words(&self) -> CounterWords {
        CounterWords::Count
    }

    /// File of the paths that are not counted, if all others are.
    fn uncounted(&self) -> Option<Identity> {
        None
    }

    /// The set of paths that it observes, if it is restricted to one.
    fn interesting(&self) -> Option<InterestingPaths> {
        None
    }
}

/// Meaning of the words of memory of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterWords {
    /// A count.
    Count,
    /// A count, and after the counts of all counters, the time of the first execution for each.
    CountAndTime,
    /// Cells for the count, the sum, and the sum of squares.
    Cells,
    /// There are no words.
    Nothing,
}

impl CounterWords {
    /// Number of words per counter.
    pub fn each(self) -> u64 {
        match self {
            CounterWords::Count => 1,
            CounterWords::CountAndTime => 2,
            CounterWords::Cells => CELLS,
            CounterWords::Nothing => 0,
        }
    }
}

impl Kind {
    /// Returns whether the two are the same kind.
    pub(crate) fn is(&self, other: &Kind) -> bool {
        std::ptr::eq(self, other)
    }

    /// Returns whether the two kinds may be requested together, because they are the same or one restricts the other.
    pub(crate) fn can_combine_with(&self, other: &Kind) -> bool {
        let restricts = |by: &Kind, of: &Kind| of.restricted_by.iter().any(|kind| kind.is(by));
        self.is(other) || restricts(self, other) || restricts(other, self)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.option)
    }
}

/// The kinds that settings request.
pub(crate) fn requested_kinds(settings: &Settings) -> impl Iterator<Item = &'static Kind> + '_ {
    KINDS.iter().copied().filter(|kind| (kind.is_requested)(settings))
}

/// Returns the observation that settings request, which must have passed the checks for conflicts.
pub(crate) fn observation_of(settings: &Settings) -> Result<Observation, ExperimentError> {
    let restricts = |kind: &Kind| requested_kinds(settings).any(|other| other.restricted_by.iter().any(|by| by.is(kind)));
    let kind = requested_kinds(settings).find(|kind| !restricts(kind));
    let observation = kind.map(|kind| (kind.read)(settings)).transpose()?.flatten();
    Ok(observation.unwrap_or(Observation::EveryPath(EveryPath)))
}
