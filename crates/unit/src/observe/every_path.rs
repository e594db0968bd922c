//! Builds that count all acyclic paths (Ball and Larus), which is the default.

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::experiment::Settings;

/// Counts of all paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EveryPath;

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "counts of all paths (observe=counts)",
    observes: "counts of all paths",
    conflict_remedy: None,
    is_requested: |_| false,
    read: |_| Ok(Some(Observation::EveryPath(EveryPath))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Admitted,
    tables: FeatureAdmission::Admitted,
    shared_counters: FeatureAdmission::Admitted,
    rules: &[],
};

impl ObservationProperties for EveryPath {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, _: &mut Settings) {}
}
