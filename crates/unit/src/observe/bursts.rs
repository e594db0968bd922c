//! Builds that count only in bursts. Their code checks a switch outside the program; while the switch is on, a duplicate of the code counts
//! all paths (Arnold and Ryder's sampling framework).

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::experiment::{ObservationTiming, Settings};

/// Counts of all paths, made only in bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CountsInBursts;

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--sample (when=bursts)",
    observes: "counts in bursts, from which the counts of all paths are estimated",
    conflict_remedy: None,
    is_requested: |settings| settings.when == Some(ObservationTiming::Bursts),
    read: |_| Ok(Some(Observation::CountsInBursts(CountsInBursts))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected { reason: "sampling estimates the counts of all paths", remedy: "omit --scheme" },
    tables: FeatureAdmission::Rejected {
        reason: "only arrays are read between bursts",
        remedy: "omit one of the two (without tables, long paths are cut)",
    },
    shared_counters: FeatureAdmission::Rejected {
        reason: "the duplicated code counts in its own thread's memory",
        remedy: "omit --threads atomic",
    },
    rules: &[],
};

impl ObservationProperties for CountsInBursts {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.when = Some(ObservationTiming::Bursts);
    }
}
