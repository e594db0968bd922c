//! Builds with sleds (patchable instructions), with which an execution is traced from outside the program. The program counts nothing. A
//! profile of the trace contains the counts of the reconstructed paths.

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties, Observe};
use crate::experiment::Settings;

/// An execution that is traced from outside the program, without counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceSleds;

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--witnesses (observe=trace)",
    observes: "an execution that is traced from outside, without counts",
    conflict_remedy: None,
    is_requested: |settings| settings.observe == Some(Observe::Trace),
    read: |_| Ok(Some(Observation::TraceSleds(TraceSleds))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected { reason: "nothing is counted in such a build", remedy: "omit --scheme" },
    tables: FeatureAdmission::Rejected { reason: "nothing is counted in such a build", remedy: "omit --table-slots" },
    shared_counters: FeatureAdmission::Rejected { reason: "nothing is counted in such a build", remedy: "omit --threads" },
    rules: &[],
};

impl ObservationProperties for TraceSleds {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::Trace);
    }
}
