//! Sums of an event for each path, besides its count: of all paths, or of those of a set, where all others of a function have one sum.
//!
//! Layout: [`crate::events`]; a counter has cells, so that neither a slot of a table nor an atomic addition does.

use super::interesting::{self, InterestingPaths};
use super::{Admission, CounterWords, Kind, Observation, Observed};
use crate::EventSource;
use crate::experiment::{ExperimentScheme, Settings};

/// Counts of paths, with the sum of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventSums {
    /// The event.
    pub event: EventSource,
    /// The paths that have sums of their own; `None`: all have.
    pub of: Option<InterestingPaths>,
}

pub(super) static KIND: Kind = Kind {
    option: "--events",
    observes: "sums of an event for each path",
    apart: None,
    is_asked: |settings| settings.events.is_some(),
    read: |settings| {
        let of = InterestingPaths::from_settings(settings)?;
        Ok(settings.events.map(|event| Observation::EventSums(EventSums { event, of })))
    },
    restricted_by: &[&interesting::KIND],
    numberings: &[],
    other_numberings: Admission::Admitted,
    tables: Admission::Refused {
        reason: "a slot of a table has no room for sums",
        remedy: "leave one out: long paths are cut without tables",
    },
    shared_counters: Admission::Refused {
        reason: "a sum and its square cannot be added to atomically",
        remedy: "let each thread have counters of its own",
    },
    rules: &[],
};

impl Observed for EventSums {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.events = Some(self.event);
        self.of.iter().for_each(|paths| paths.write(settings));
    }

    fn scheme(&self) -> ExperimentScheme {
        self.of.map_or(ExperimentScheme::BallLarus, |paths| paths.scheme())
    }

    fn interesting(&self) -> Option<InterestingPaths> {
        self.of
    }

    fn words(&self) -> CounterWords {
        CounterWords::Cells
    }
}
