//! Builds that count paths over iterations (sequences of consecutive paths), which are given by a set, instead of single paths
//! ([`crate::iterations`]).

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::Identity;
use crate::experiment::{Settings, SettingsFile, stored_input_identity};
use crate::iterations::{IterationPath, MAX_ITERATIONS};
use serde::{Deserialize, Serialize};

/// Counts of the paths over iterations in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IterationCounts {
    /// File of the set.
    pub set: Identity,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--iterations (iterations=FILE)",
    observes: "counts of paths over iterations instead of paths",
    conflict_remedy: None,
    is_requested: |settings| settings.iterations.is_some(),
    read: |settings| {
        let observation = |set| Observation::IterationCounts(IterationCounts { set });
        Ok(stored_input_identity("iterations", &settings.iterations)?.map(observation))
    },
    restricted_by: &[],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected {
        reason: "paths over iterations have a numbering of their own",
        remedy: "omit one of the two",
    },
    tables: FeatureAdmission::Rejected { reason: "paths over iterations are counted in arrays", remedy: "omit --table-slots" },
    shared_counters: FeatureAdmission::Admitted,
    rules: &[],
};

impl ObservationProperties for IterationCounts {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.iterations = Some(SettingsFile::Stored(self.set));
    }
}

/// Words in which a function counts paths over iterations. The last word counts all of them that have no word of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IterationWords {
    /// Index of the function's first word among the unit's words.
    pub first_word: u64,
    /// Maximum number of paths that form a path over iterations.
    pub iterations: u32,
    /// The path over iterations that each word counts, except the last word.
    pub paths: Vec<IterationPath>,
}

impl IterationWords {
    /// Returns the number of words.
    pub fn word_count(&self) -> u64 {
        self.paths.len() as u64 + 1
    }

    /// Returns the range of the function's words in the unit.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.word_count())
    }

    /// Returns the index of the word that counts all paths over iterations without a word of their own.
    pub fn shared_word(&self) -> u64 {
        self.range().end.saturating_sub(1)
    }

    pub(crate) fn is_sound(&self, paths: u64) -> bool {
        let is_path = |path: &IterationPath| (1..=self.iterations as usize).contains(&path.len()) && path.iter().all(|p| *p < paths);
        (2..=MAX_ITERATIONS).contains(&self.iterations) && self.paths.iter().all(is_path)
    }
}
