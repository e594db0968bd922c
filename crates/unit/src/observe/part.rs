//! Builds of instrumented copies of a program, each of which counts some of the paths. If the program counts only unknown paths, a part
//! consists of whole functions.

use super::{CounterWords, FeatureAdmission, Observation, ObservationKind, ObservationProperties, unknown};
use crate::Identity;
use crate::experiment::{FeatureRelation, FeatureRule, RequestedFeature, Settings, SettingsFile, stored_input_identity};
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

const COPY_PART_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "a copy's part (part=FILE)", is_requested: |settings| settings.part.is_some() };
const COPY_ORIGIN_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "the unit of a copy (origin=UNIT)", is_requested: |settings| settings.origin.is_some() };
const PROBE_HITS_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "--count-hits (count-hits=on)", is_requested: |settings| settings.count_hits == Some(true) };
const KNOWN_PATHS_FEATURE: RequestedFeature =
    RequestedFeature { spelling: "--residual (known=FILE)", is_requested: |settings| settings.known.is_some() };

const PART_ORIGIN_REASON: &str = "a part belongs to one unit";
const RECORD_COPIES_REMEDY: &str = "use `trodden record --copies`, which sets both";

pub(super) static KIND: ObservationKind = ObservationKind {
    option: COPY_PART_FEATURE.spelling,
    observes: "a copy's part of the counts of all paths, or of unknown ones",
    conflict_remedy: Some("build the program that is to be copied without the other option"),
    is_requested: COPY_PART_FEATURE.is_requested,
    read: |settings| {
        let (known, count_hits) = (stored_input_identity("known", &settings.known)?, settings.count_hits.unwrap_or(false));
        let part = stored_input_identity("part", &settings.part)?.zip(settings.origin);
        Ok(part.map(|(file, origin)| Observation::CopyPart(CopyPart { file, origin, known, count_hits })))
    },
    restricted_by: &[&unknown::KIND],
    numberings: &[],
    other_numberings: FeatureAdmission::Rejected {
        reason: "the paths of a program are divided among its copies by the scheme ball-larus",
        remedy: "build the program that is to be copied with that scheme",
    },
    tables: FeatureAdmission::Rejected {
        reason: "copies count in arrays",
        remedy: "build the program that is to be copied without --table-slots",
    },
    shared_counters: FeatureAdmission::Admitted,
    rules: &[
        FeatureRule {
            one: COPY_PART_FEATURE,
            relation: FeatureRelation::Needs,
            other: COPY_ORIGIN_FEATURE,
            reason: PART_ORIGIN_REASON,
            remedy: RECORD_COPIES_REMEDY,
        },
        FeatureRule {
            one: COPY_ORIGIN_FEATURE,
            relation: FeatureRelation::Needs,
            other: COPY_PART_FEATURE,
            reason: PART_ORIGIN_REASON,
            remedy: RECORD_COPIES_REMEDY,
        },
        FeatureRule {
            one: PROBE_HITS_FEATURE,
            relation: FeatureRelation::Needs,
            other: COPY_PART_FEATURE,
            reason: "hits are executions of a copy's probes",
            remedy: "use `trodden-lab with --count-hits -- record --copies K`",
        },
        FeatureRule {
            one: PROBE_HITS_FEATURE,
            relation: FeatureRelation::Excludes,
            other: KNOWN_PATHS_FEATURE,
            reason: "copies of a residual build record times of first executions instead of hits",
            remedy: "count hits in a program that counts all paths",
        },
    ],
};

impl ObservationProperties for CopyPart {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
        (settings.part, settings.origin) = (Some(SettingsFile::Stored(self.file)), Some(self.origin));
        settings.known = self.known.map(SettingsFile::Stored);
        settings.count_hits = self.count_hits.then_some(true);
    }

    fn counter_words(&self) -> CounterWords {
        if self.known.is_some() { CounterWords::CountAndTime } else { CounterWords::Count }
    }

    fn uncounted_paths_file(&self) -> Option<Identity> {
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
    /// Whether two more words follow, which count the executions of labels and of all probes ([`LabelWords::hit_counter_index`]).
    pub has_hits: bool,
    /// Label of each edge in the function's `dag`.
    pub labels: Vec<i64>,
}

impl LabelWords {
    /// Returns the range of the function's words in the unit, including those that count executions of probes.
    pub fn range(&self) -> std::ops::Range<u64> {
        let hits = if self.has_hits { HIT_COUNTER_WORDS } else { 0 };
        self.first_word..self.first_word.saturating_add(self.words).saturating_add(hits)
    }

    /// Returns the index of the word that counts executions of labels. The next word counts executions of all probes. `None` if these are
    /// not counted.
    pub fn hit_counter_index(&self) -> Option<u64> {
        self.has_hits.then(|| self.first_word.saturating_add(self.words))
    }

    pub(crate) fn is_sound(&self, edges: usize) -> bool {
        self.labels.len() == edges
    }
}

const HIT_COUNTER_WORDS: u64 = 2;
