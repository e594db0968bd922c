//! Builds that sum an event for each path, in addition to counting the path. If a set of paths is given, each path in it has its own sum,
//! and the other paths of a function share one sum. A counter has several cells ([`crate::events`]), so hash tables and atomic additions
//! are not supported.

use super::interesting::{self, InterestingPaths};
use super::{CounterWords, FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::EventSource;
use crate::experiment::{ExperimentScheme, Settings};

/// Counts of paths, and the sum of an event for each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventSums {
    /// The event.
    pub event: EventSource,
    /// The interesting paths that have their own sums; `None` if all paths have.
    pub paths: Option<InterestingPaths>,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--events",
    observes: "sums of an event for each path",
    conflict_remedy: None,
    is_requested: |settings| settings.events.is_some(),
    read: |settings| {
        let paths = InterestingPaths::from_settings(settings)?;
        Ok(settings.events.map(|event| Observation::EventSums(EventSums { event, paths })))
    },
    restricted_by: &[&interesting::KIND],
    numberings: &[],
    other_numberings: FeatureAdmission::Admitted,
    tables: FeatureAdmission::Rejected {
        reason: "a slot of a table has no room for sums",
        remedy: "omit one of the two (without tables, long paths are cut)",
    },
    shared_counters: FeatureAdmission::Rejected {
        reason: "a sum and a sum of squares cannot be updated together atomically",
        remedy: "omit --threads atomic",
    },
    rules: &[],
};

impl ObservationProperties for EventSums {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.events = Some(self.event);
        self.paths.iter().for_each(|paths| paths.write_to_settings(settings));
    }

    fn scheme(&self) -> ExperimentScheme {
        self.paths.map_or(ExperimentScheme::BallLarus, |paths| paths.scheme())
    }

    fn interesting_paths(&self) -> Option<InterestingPaths> {
        self.paths
    }

    fn counter_words(&self) -> CounterWords {
        CounterWords::Cells
    }
}
