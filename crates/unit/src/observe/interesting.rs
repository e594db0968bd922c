//! Builds that count interesting paths, which are given by a set. Each path in the set has its own counter, and the other paths of a
//! function share one. Alternatively, all paths of the functions in the set are counted.

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::Identity;
use crate::experiment::{
    DEFAULT_TIME_LIMIT_S, ExperimentError, ExperimentScheme, FeatureRelation, FeatureRule, RequestedFeature, Settings, SettingsFile,
    stored_input_identity,
};
use serde::{Deserialize, Serialize};
use trodden_flow::NumberingScheme;

/// Counts of the interesting paths in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterestingPaths {
    /// File of the set.
    pub set: Identity,
    /// Numbering of the interesting paths; `None` if all paths of the functions in the set are counted.
    pub numbering: Option<NumberingScheme>,
    /// Time limit, in seconds, for finding the numbering of one function ([`NumberingScheme::PppOptimal`]).
    pub time_limit_s: u64,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--interesting",
    observes: "counts of interesting paths only",
    conflict_remedy: None,
    is_requested: |settings| settings.interesting.is_some(),
    read: |settings| Ok(InterestingPaths::from_settings(settings)?.map(Observation::InterestingPaths)),
    restricted_by: &[],
    numberings: &NumberingScheme::ALL,
    other_numberings: FeatureAdmission::Admitted,
    tables: FeatureAdmission::Rejected { reason: "each interesting path has its own counter", remedy: "omit one of the two" },
    shared_counters: FeatureAdmission::Admitted,
    rules: &[FeatureRule {
        one: RequestedFeature { spelling: "--time-limit", is_requested: |settings| settings.time_limit_s.is_some() },
        relation: FeatureRelation::Needs,
        other: RequestedFeature {
            spelling: "--scheme ppp-optimal",
            is_requested: |settings| settings.scheme == Some(ExperimentScheme::Interesting(NumberingScheme::PppOptimal)),
        },
        reason: "only that scheme has a time limit",
        remedy: "omit --time-limit, or use --scheme ppp-optimal",
    }],
};

impl InterestingPaths {
    /// Returns the set and the numbering that the settings request; `None` if they request no set.
    pub(super) fn from_settings(settings: &Settings) -> Result<Option<InterestingPaths>, ExperimentError> {
        let numbering = match settings.scheme {
            Some(ExperimentScheme::Interesting(numbering)) => Some(numbering),
            Some(ExperimentScheme::BallLarus) => None,
            None => Some(NumberingScheme::KnownTable),
        };
        let time_limit_s = settings.time_limit_s.unwrap_or(DEFAULT_TIME_LIMIT_S);
        Ok(stored_input_identity("interesting", &settings.interesting)?.map(|set| InterestingPaths { set, numbering, time_limit_s }))
    }
}

impl ObservationProperties for InterestingPaths {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        settings.interesting = Some(SettingsFile::Stored(self.set));
        settings.time_limit_s = (self.numbering == Some(NumberingScheme::PppOptimal)).then_some(self.time_limit_s);
    }

    fn scheme(&self) -> ExperimentScheme {
        self.numbering.map_or(ExperimentScheme::BallLarus, ExperimentScheme::Interesting)
    }

    fn interesting_paths(&self) -> Option<InterestingPaths> {
        Some(*self)
    }
}

/// Words in which a function counts its interesting paths. All other words of the range, including the last one, count other paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterestingWords {
    /// Index of the function's first word among the unit's words.
    pub first_word: u64,
    /// Number of the function's words; at least one.
    pub words: u64,
    /// Words of the interesting paths, as pairs of word (relative to `first_word`) and path ID, sorted by word.
    pub paths: Vec<(u64, u64)>,
    /// Number of uninteresting paths that the words of interesting paths also count.
    pub aliases: StorageAliases,
    /// Whether the numbering was verified for all paths. If not, it was only tested on random paths.
    pub proven: bool,
}

/// Number of uninteresting paths that are counted in words of interesting ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageAliases {
    /// The number of such paths among all paths of the function.
    Exact(u64),
    /// The number of such paths among random paths.
    Sampled {
        /// Number of random uninteresting paths that share a counter with an interesting path.
        aliases: u64,
        /// Number of random paths.
        of: u64,
    },
}

impl StorageAliases {
    /// Returns whether no uninteresting path was found that is counted as an interesting one.
    pub fn is_empty(self) -> bool {
        matches!(self, StorageAliases::Exact(0) | StorageAliases::Sampled { aliases: 0, .. })
    }
}

impl InterestingWords {
    /// Returns the range of the function's words in the unit.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// Returns the index of the word that counts all uninteresting paths.
    pub fn shared_word(&self) -> u64 {
        self.range().end.saturating_sub(1)
    }

    pub(crate) fn is_sound(&self, paths: u64) -> bool {
        let is_known = |&(word, path): &(u64, u64)| word < self.words.saturating_sub(1) && path < paths;
        self.words > 0 && self.paths.is_sorted_by(|a, b| a.0 < b.0) && self.paths.iter().all(is_known)
    }
}
