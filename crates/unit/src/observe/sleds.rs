//! Sleds for the witnesses of an execution that is followed from outside: nothing is counted. A profile of such an execution has
//! counts all the same, of paths that were reconstructed.

use super::{Admission, Kind, Observation, Observe, Observed};
use crate::experiment::Settings;

/// What was followed from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceSleds;

pub(super) static KIND: Kind = Kind {
    option: "--witnesses (observe=trace)",
    observes: "an execution that is followed from outside, without any count",
    apart: None,
    is_asked: |settings| settings.observe == Some(Observe::Trace),
    read: |_| Ok(Some(Observation::TraceSleds(TraceSleds))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: Admission::Refused { reason: "nothing is counted there", remedy: "leave --scheme out" },
    tables: Admission::Refused { reason: "nothing is counted there", remedy: "leave --table-slots out" },
    shared_counters: Admission::Refused { reason: "nothing is counted there", remedy: "leave --threads out" },
    rules: &[],
};

impl Observed for TraceSleds {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::Trace);
    }
}
