//! Source-based coverage: the compiler has its own counters inserted, and trodden notes where they were and counts paths, of which they
//! follow.

use super::{Admission, Kind, Observation, Observe, Observed};
use crate::experiment::Settings;

/// Counts of all paths, for coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoverageCounts {
    /// With the test vectors of decisions (MC/DC).
    pub mcdc: bool,
}

pub(super) static KIND: Kind = Kind {
    option: "--coverage (observe=coverage)",
    observes: "coverage, which takes the counts of all paths of a whole run",
    apart: None,
    is_asked: |settings| matches!(settings.observe, Some(Observe::Coverage | Observe::Mcdc)),
    read: |settings| Ok(Some(Observation::CoverageCounts(CoverageCounts { mcdc: settings.observe == Some(Observe::Mcdc) }))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: Admission::Refused { reason: "coverage takes the counts of all paths", remedy: "leave --scheme out" },
    tables: Admission::Admitted,
    shared_counters: Admission::Admitted,
    rules: &[],
};

impl Observed for CoverageCounts {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.observe = Some(if self.mcdc { Observe::Mcdc } else { Observe::Coverage });
    }
}
