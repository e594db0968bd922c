//! Sleds for the witnesses of an execution that is traced from outside: nothing is counted. A profile of such an execution nevertheless has
//! counts, of the reconstructed paths.

use super::{Admission, Kind, Observation, ObservationProperties, Observe};
use crate::experiment::Settings;

/// An execution that is traced from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceSleds;

pub(super) static KIND: Kind = Kind {
    option: "--witnesses (observe=trace)",
    observes: "an execution that is traced from outside, without counts",
    conflict_remedy: None,
    is_requested: |settings| settings.observe == Some(Observe::Trace),
    read: |_| Ok(Some(Observation::TraceSleds(TraceSleds))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: Admission::Refused { reason: "nothing is counted in such a build", remedy: "omit --scheme" },
    tables: Admission::Refused { reason: "nothing is counted in such a build", remedy: "omit --table-slots" },
    shared_counters: Admission::Refused { reason: "nothing is counted in such a build", remedy: "omit --threads" },
    rules: &[],
};

impl ObservationProperties for TraceSleds {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::Trace);
    }
}
