//! Builds for source-based coverage. trodden removes the counters that the compiler inserts and records their positions. The values of
//! these counters are computed from the counts of paths.

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties, Observe};
use crate::experiment::Settings;

/// Counts of all paths, from which coverage is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoverageCounts {
    /// Whether the test vectors of decisions (MC/DC) are recorded, too.
    pub mcdc: bool,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--coverage (observe=coverage)",
    observes: "coverage, which requires the counts of all paths of a whole run",
    conflict_remedy: None,
    is_requested: |settings| matches!(settings.observe, Some(Observe::Coverage | Observe::Mcdc)),
    read: |settings| Ok(Some(Observation::CoverageCounts(CoverageCounts { mcdc: settings.observe == Some(Observe::Mcdc) }))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected { reason: "coverage requires the counts of all paths", remedy: "omit --scheme" },
    tables: FeatureAdmission::Admitted,
    shared_counters: FeatureAdmission::Admitted,
    rules: &[],
};

impl ObservationProperties for CoverageCounts {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.observe = Some(if self.mcdc { Observe::Mcdc } else { Observe::Coverage });
    }
}
