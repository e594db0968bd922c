//! Builds that count only watched paths, which an expression selects. Each of them is reported as soon as it is executed. Such a build is a
//! residual build ([`super::unknown`]) to which all other paths are known.

use super::{CounterWords, FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::Identity;
use crate::experiment::{Settings, SettingsFile, stored_input_identity};

/// Counts of watched paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchedPaths {
    /// File with all paths of the program that are not watched.
    pub others: Identity,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--watch (watched=FILE)",
    observes: "counts of watched paths only",
    conflict_remedy: None,
    is_requested: |settings| settings.watched.is_some(),
    read: |settings| {
        let observation = |others| Observation::WatchedPaths(WatchedPaths { others });
        Ok(stored_input_identity("watched", &settings.watched)?.map(observation))
    },
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected {
        reason: "--watch already selects which paths are counted",
        remedy: "omit one of the two",
    },
    tables: FeatureAdmission::Rejected { reason: "each watched path has its own counter", remedy: "omit one of the two" },
    shared_counters: FeatureAdmission::Rejected {
        reason: "the first thread that counts a path also records the time",
        remedy: "omit --threads atomic",
    },
    rules: &[],
};

impl ObservationProperties for WatchedPaths {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.watched = Some(SettingsFile::Stored(self.others));
    }

    fn counter_words(&self) -> CounterWords {
        CounterWords::CountAndTime
    }

    fn uncounted_paths_file(&self) -> Option<Identity> {
        Some(self.others)
    }
}
