//! Watched paths: the paths that match an expression are counted, and each is reported as soon as it is taken. The build names all others,
//! and counts like one of [unknown paths](super::unknown).

use super::{Admission, CounterWords, Kind, Observation, Observed};
use crate::Identity;
use crate::experiment::{Settings, SettingsFile, identity};

/// Counts of the paths that are watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchedPaths {
    /// The file of all other paths of the program.
    pub others: Identity,
}

pub(super) static KIND: Kind = Kind {
    option: "--watch (watched=FILE)",
    observes: "counts of watched paths only",
    apart: None,
    is_asked: |settings| settings.watched.is_some(),
    read: |settings| {
        let of = |others| Observation::WatchedPaths(WatchedPaths { others });
        Ok(identity("watched", &settings.watched)?.map(of))
    },
    restricted_by: &[],
    numberings: &[],
    other_numberings: Admission::Refused { reason: "--watch says itself which paths are counted", remedy: "leave one out" },
    tables: Admission::Refused { reason: "each watched path has a word of its own", remedy: "leave one out" },
    shared_counters: Admission::Refused {
        reason: "times are noted by the thread that counts first",
        remedy: "let each thread have counters of its own",
    },
    rules: &[],
};

impl Observed for WatchedPaths {
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
