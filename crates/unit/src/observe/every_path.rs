//! Builds that count all acyclic paths (Ball and Larus), which is the default.

use super::{Admission, Observation, ObservationKind, ObservationProperties};
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
    other_numberings: Admission::Admitted,
    tables: Admission::Admitted,
    shared_counters: Admission::Admitted,
    rules: &[],
};

impl ObservationProperties for EveryPath {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write(&self, _: &mut Settings) {}
}
