//! Builds of instrumented copies of a program, each of which counts some of the paths. If the program counts only unknown paths, a part
//! consists of whole functions.

use super::{Admission, CounterWords, Observation, ObservationKind, ObservationProperties, unknown};
use crate::Identity;
use crate::experiment::{FeatureRule, Relation, RequestedFeature, Settings, SettingsFile, stored_identity};
use serde::{Deserialize, Serialize};

/// The part of the paths that one of several copies of a program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyPart {
    /// File of the copy's part.
    pub file: Identity,
    /// The unit of the original program from which this unit is made.
    pub origin: Identity,
    /// File of the known paths, if the program counts only unknown paths.
    pub known: Option<Identity>,
    /// Whether executions of the copy's probes are counted, too.
    pub count_hits: bool,
}

const PART_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "a copy's part (part=FILE)", is_requested: |settings| settings.part.is_some() };
const ORIGIN_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "the unit of a copy (origin=UNIT)", is_requested: |settings| settings.origin.is_some() };
const HITS_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "--count-hits (count-hits=on)", is_requested: |settings| settings.count_hits == Some(true) };
const KNOWN_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "--residual (known=FILE)", is_requested: |settings| settings.known.is_some() };

const PART_ORIGIN_REASON: &str = "a part belongs to one unit";
const RECORD_COPIES_REMEDY: &str = "use `trodden record --copies`, which sets both";

pub(super) static KIND: ObservationKind = ObservationKind {
    option: PART_FEATURE.spelling,
    observes: "a copy's part of the counts of all paths, or of unknown ones",
    conflict_remedy: Some("build the program that is to be copied without the other option"),
    is_requested: PART_FEATURE.is_requested,
    read: |settings| {
        let (known, count_hits) = (stored_identity("known", &settings.known)?, settings.count_hits.unwrap_or(false));
        let part = stored_identity("part", &settings.part)?.zip(settings.origin);
        Ok(part.map(|(file, origin)| Observation::CopyPart(CopyPart { file, origin, known, count_hits })))
    },
    restricted_by: &[&unknown::KIND],
    numberings: &[],
    other_numberings: Admission::Rejected {
        reason: "the paths of a program are divided among its copies by the scheme ball-larus",
        remedy: "build the program that is to be copied with that scheme",
    },
    tables: Admission::Rejected {
        reason: "copies count in arrays",
        remedy: "build the program that is to be copied without --table-slots",
    },
    shared_counters: Admission::Admitted,
    rules: &[
        FeatureRule {
            one: PART_FEATURE,
            relation: Relation::Needs,
            other: ORIGIN_FEATURE,
            reason: PART_ORIGIN_REASON,
            remedy: RECORD_COPIES_REMEDY,
        },
        FeatureRule {
            one: ORIGIN_FEATURE,
            relation: Relation::Needs,
            other: PART_FEATURE,
            reason: PART_ORIGIN_REASON,
            remedy: RECORD_COPIES_REMEDY,
        },
        FeatureRule {
            one: HITS_FEATURE,
            relation: Relation::Needs,
            other: PART_FEATURE,
            reason: "hits are executions of a copy's probes",
            remedy: "use `trodden-lab with --count-hits -- record --copies K`",
        },
        FeatureRule {
            one: HITS_FEATURE,
            relation: Relation::Excludes,
            other: KNOWN_FEATURE,
            reason: "copies of a residual build record times of first executions instead of hits",
            remedy: "count hits in a program that counts all paths",
        },
    ],
};

impl ObservationProperties for CopyPart {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        (settings.part, settings.origin) = (Some(SettingsFile::Stored(self.file)), Some(self.origin));
        settings.known = self.known.map(SettingsFile::Stored);
        settings.count_hits = self.count_hits.then_some(true);
    }

    fn words(&self) -> CounterWords {
        if self.known.is_some() { CounterWords::CountAndTime } else { CounterWords::Count }
    }

    fn uncounted(&self) -> Option<Identity> {
        self.known
    }
}

/// Words in which a copy of a program counts, indexed by sums of labels. The function's `dag` contains only the edges of paths that this
/// copy counts. Each of these paths is counted in the word whose index is the sum of the labels on its edges. All other words contain
/// executions of paths that the copy does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelWords {
    /// Index of the word for the sum 0 among the unit's words.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// Whether two more words follow, which count the executions of labels and of all probes ([`LabelWords::hits`]).
    pub has_hits: bool,
    /// Label of each edge in the function's `dag`.
    pub labels: Vec<i64>,
}

impl LabelWords {
    /// Returns the range of the function's words in the unit, including those that count executions of probes.
    pub fn range(&self) -> std::ops::Range<u64> {
        let hits = if self.has_hits { HIT_WORDS } else { 0 };
        self.first_word..self.first_word.saturating_add(self.words).saturating_add(hits)
    }

    /// Returns the index of the word that counts executions of labels. The next word counts executions of all probes. `None` if these are
    /// not counted.
    pub fn hits(&self) -> Option<u64> {
        self.has_hits.then(|| self.first_word.saturating_add(self.words))
    }

    pub(crate) fn is_sound(&self, edges: usize) -> bool {
        self.labels.len() == edges
    }
}

const HIT_WORDS: u64 = 2;
