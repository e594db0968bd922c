//! Builds for LLVM's edge profile. trodden removes the counters that LLVM inserts and records their positions. The values of these counters
//! are computed from the counts of paths.

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties, Observe};
use crate::experiment::Settings;

/// Counts of all paths, from which an edge profile is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EdgeProfileCounts;

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--pgo (observe=edge-profile)",
    observes: "an edge profile, which requires the counts of all paths of a whole run",
    conflict_remedy: None,
    is_requested: |settings| settings.observe == Some(Observe::EdgeProfile),
    read: |_| Ok(Some(Observation::EdgeProfileCounts(EdgeProfileCounts))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected { reason: "an edge profile requires the counts of all paths", remedy: "omit --scheme" },
    tables: FeatureAdmission::Admitted,
    shared_counters: FeatureAdmission::Admitted,
    rules: &[],
};

impl ObservationProperties for EdgeProfileCounts {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.observe = Some(Observe::EdgeProfile);
    }
}
