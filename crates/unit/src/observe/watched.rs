//! Watched paths: the paths that match an expression are counted, and each is reported as soon as it is taken. The build lists all other
//! paths, and counts like one of [unknown paths](super::unknown).

use super::{Admission, CounterWords, Kind, Observation, ObservationProperties};
use crate::Identity;
use crate::experiment::{Settings, SettingsFile, identity};

/// Counts of the watched paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchedPaths {
    /// File of all other paths of the program.
    pub others: Identity,
}

pub(super) static KIND: Kind = Kind {
    option: "--watch (watched=FILE)",
    observes: "counts of watched paths only",
    conflict_remedy: None,
    is_requested: |settings| settings.watched.is_some(),
    read: |settings| {
        let of = |others| Observation::WatchedPaths(WatchedPaths { others });
        Ok(identity("watched", &settings.watched)?.map(of))
    },
    restricted_by: &[],
    numberings: &[],
    other_numberings: Admission::Refused { reason: "--watch already selects which paths are counted", remedy: "omit one of them" },
    tables: Admission::Refused { reason: "each watched path has its own counter", remedy: "omit one of them" },
    shared_counters: Admission::Refused { reason: "the time is recorded by the thread that counts first", remedy: "omit --threads atomic" },
    rules: &[],
};

impl ObservationProperties for WatchedPaths {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.watched = Some(SettingsFile::Stored(self.others));
    }

    fn words(&self) -> CounterWords {
        CounterWords::CountAndTime
    }

    fn uncounted(&self) -> Option<Identity> {
        Some(self.others)
    }
}
