//! Counts in bursts: checking code, and a duplicate that counts all paths while a switch outside the program is on (Arnold and Ryder's
//! sampling framework).

use super::{Admission, Kind, Observation, ObservationProperties};
use crate::experiment::{Settings, Timing};

/// Counts of all paths, in bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CountsInBursts;

pub(super) static KIND: Kind = Kind {
    option: "--sample (when=bursts)",
    observes: "counts in bursts, from which the counts of all paths are estimated",
    conflict_remedy: None,
    is_requested: |settings| settings.when == Some(Timing::Bursts),
    read: |_| Ok(Some(Observation::CountsInBursts(CountsInBursts))),
    restricted_by: &[],
    numberings: &[],
    other_numberings: Admission::Refused { reason: "sampling estimates the counts of all paths", remedy: "omit --scheme" },
    tables: Admission::Refused {
        reason: "only arrays are read between bursts",
        remedy: "omit one of them: without tables, long paths are cut",
    },
    shared_counters: Admission::Refused {
        reason: "the duplicated code counts in its own thread's memory",
        remedy: "omit --threads atomic",
    },
    rules: &[],
};

impl ObservationProperties for CountsInBursts {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.when = Some(Timing::Bursts);
    }
}
