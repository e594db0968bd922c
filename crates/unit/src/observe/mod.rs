//! What a build observes: one module for each kind of observation.
//!
//! A build observes one kind ([`Observation`]), so what two kinds would say at once cannot be written down. A kind says how people ask
//! for it, which other kinds restrict it, and which numberings, tables and shared counters its builds may have ([`Kind`]); and of an
//! experiment what its counters hold ([`Observed`]).
//!
//! What a kind does to code is in the module of the same name in `trodden-instrument`, what makes its counts inexact in that of
//! `trodden-profile`. A new kind is a module, and a line of [`kinds`]; its spelling is a value of [`Observe`].

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
            /// What its kind says of it.
            pub fn observed(&self) -> &dyn Observed {
                match self {
                    $(Observation::$kind(observed) => observed,)*
                }
            }
        }

        /// All kinds. Of two that are asked for at once, the message names the earlier one first.
        pub static KINDS: &[&Kind] = &[$(&$module::KIND,)*];
    };
}

kinds! {
    /// How often each path was taken, and the sum of an event.
    sums::EventSums,
    /// Counts of all paths, in a form of which LLVM's edge profile can be made.
    edge_profile::EdgeProfileCounts,
    /// Counts of all paths, in a form of which the counters of source-based coverage (clang's, rustc's) can be computed.
    coverage::CoverageCounts,
    /// The sequence of paths and calls; counts follow from it.
    stream::PathStream,
    /// Nothing: blocks are marked, so that branches which hardware recorded can be turned into paths.
    addresses::BlockAddresses,
    /// Nothing: blocks have sleds for witnesses of an execution that is followed from outside.
    sleds::TraceSleds,
    /// Counts of all paths, while a switch outside the program is on.
    bursts::CountsInBursts,
    /// Counts of interprocedural segments, in the place of paths.
    segments::SegmentCounts,
    /// Counts of the paths of a set; all others of a function are counted together.
    interesting::InterestingPaths,
    /// Counts of all paths but those of a set: a residual build.
    unknown::UnknownPaths,
    /// Counts of the paths that are watched for.
    watched::WatchedPaths,
    /// Counts of what one of several copies of a program counts.
    part::CopyPart,
    /// Counts of all paths.
    every_path::EveryPath,
}

/// A kind of observation: how people ask for it, and what else they may ask for with it.
pub struct Kind {
    /// The option, and the setting where there is no option or it reads otherwise.
    pub option: &'static str,
    /// What is observed, as a noun phrase.
    pub observes: &'static str,
    /// What to do if it is asked for with another kind; `None`: make two builds.
    pub(crate) apart: Option<&'static str>,
    /// Whether settings ask for it.
    pub(crate) is_asked: fn(&Settings) -> bool,
    /// The observation of this kind that settings describe; `None` if they lack what it takes.
    pub(crate) read: fn(&Settings) -> Result<Option<Observation>, ExperimentError>,
    /// Kinds that restrict it: asked for with one of them, it is of what that one names.
    pub(crate) restricted_by: &'static [&'static Kind],
    /// The numberings besides that of all paths by which it may count.
    pub(crate) numberings: &'static [NumberingScheme],
    /// Whether another numbering is refused by name; admitted: it is as if no kind had been asked for.
    pub(crate) other_numberings: Admission,
    /// Tables for functions with many paths.
    pub(crate) tables: Admission,
    /// Counters that all threads increment.
    pub(crate) shared_counters: Admission,
    /// What its own settings need and exclude.
    pub(crate) rules: &'static [Rule],
}

/// Whether a kind of observation admits something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It does.
    Admitted,
    /// It does not.
    Refused {
        /// Why.
        reason: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
}

/// What is known of an observation from its kind.
pub trait Observed {
    /// Its kind.
    fn kind(&self) -> &'static Kind;

    /// Adds to settings what asks for it.
    fn write(&self, settings: &mut Settings);

    /// The numbering of paths.
    fn scheme(&self) -> ExperimentScheme {
        ExperimentScheme::BallLarus
    }

    /// What the words of a counter hold.
    fn words(&self) -> CounterWords {
        CounterWords::Count
    }

    /// The file of the paths that are not counted, if it is of all others.
    fn uncounted(&self) -> Option<Identity> {
        None
    }

    /// The paths that are named by a set, if it is of such.
    fn interesting(&self) -> Option<InterestingPaths> {
        None
    }
}

/// What the words of memory of a unit's counters hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterWords {
    /// A count.
    Count,
    /// A count; and behind the counts of all, for each the time when it was counted first.
    CountAndTime,
    /// Cells: count, sum and sum of squares.
    Cells,
    /// There are none.
    Nothing,
}

impl CounterWords {
    /// How many there are for each counter.
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
    /// Whether it is this kind.
    pub(crate) fn is(&self, other: &Kind) -> bool {
        std::ptr::eq(self, other)
    }

    /// Whether two kinds may be asked for together, since one restricts the other.
    pub(crate) fn goes_with(&self, other: &Kind) -> bool {
        let restricts = |by: &Kind, of: &Kind| of.restricted_by.iter().any(|kind| kind.is(by));
        self.is(other) || restricts(self, other) || restricts(other, self)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.option)
    }
}

/// Kinds that settings ask for.
pub(crate) fn asked(settings: &Settings) -> impl Iterator<Item = &'static Kind> + '_ {
    KINDS.iter().copied().filter(|kind| (kind.is_asked)(settings))
}

/// The observation that settings ask for, after the check that they make sense together.
pub(crate) fn of_settings(settings: &Settings) -> Result<Observation, ExperimentError> {
    let restricts = |kind: &Kind| asked(settings).any(|other| other.restricted_by.iter().any(|by| by.is(kind)));
    let kind = asked(settings).find(|kind| !restricts(kind));
    let observation = kind.map(|kind| (kind.read)(settings)).transpose()?.flatten();
    Ok(observation.unwrap_or(Observation::EveryPath(EveryPath)))
}
