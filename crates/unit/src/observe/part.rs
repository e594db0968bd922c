//! The part of one of several copies of a program, which counts some of the paths while the other copies count the rest. A copy of a
//! residual build counts whole functions, each like that build.

use super::{Admission, CounterWords, Kind, Observation, ObservationProperties, unknown};
use crate::Identity;
use crate::experiment::{Choice, Relation, Rule, Settings, SettingsFile, identity};
use serde::{Deserialize, Serialize};

/// The part that one of several copies of a program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyPart {
    /// File of the copy's part.
    pub file: Identity,
    /// The unit that this one is made from, in the original program.
    pub origin: Identity,
    /// Identity of the file that lists the known paths, if the program counts only unknown paths.
    pub known: Option<Identity>,
    /// Whether executions of the copy's probes are counted as well.
    pub count_hits: bool,
}

const PART: Choice = Choice { spelling: "a copy's part (part=FILE)", is_made: |settings| settings.part.is_some() };
const ORIGIN: Choice = Choice { spelling: "the unit of a copy (origin=UNIT)", is_made: |settings| settings.origin.is_some() };
const HITS: Choice = Choice { spelling: "--count-hits (count-hits=on)", is_made: |settings| settings.count_hits == Some(true) };
const KNOWN: Choice = Choice { spelling: "--residual (known=FILE)", is_made: |settings| settings.known.is_some() };

const PART_NEEDS_UNIT: &str = "a part belongs to one unit";
const SET_BY_RECORDING: &str = "use `trodden record --copies`, which sets both";

pub(super) static KIND: Kind = Kind {
    option: PART.spelling,
    observes: "a copy's part of the counts of all paths, or of unknown ones",
    conflict_remedy: Some("build the program for copies without the other"),
    is_requested: PART.is_made,
    read: |settings| {
        let (known, count_hits) = (identity("known", &settings.known)?, settings.count_hits.unwrap_or(false));
        let part = identity("part", &settings.part)?.zip(settings.origin);
        Ok(part.map(|(file, origin)| Observation::CopyPart(CopyPart { file, origin, known, count_hits })))
    },
    restricted_by: &[&unknown::KIND],
    numberings: &[],
    other_numberings: Admission::Refused {
        reason: "the paths of a program are divided among its copies by the scheme ball-larus",
        remedy: "build the program for copies with that scheme",
    },
    tables: Admission::Refused { reason: "copies count in arrays", remedy: "build the program for copies without --table-slots" },
    shared_counters: Admission::Admitted,
    rules: &[
        Rule { one: PART, relation: Relation::Needs, other: ORIGIN, reason: PART_NEEDS_UNIT, remedy: SET_BY_RECORDING },
        Rule { one: ORIGIN, relation: Relation::Needs, other: PART, reason: PART_NEEDS_UNIT, remedy: SET_BY_RECORDING },
        Rule {
            one: HITS,
            relation: Relation::Needs,
            other: PART,
            reason: "hits are executions of a copy's probes",
            remedy: "use `trodden-lab with --count-hits -- record --copies K`",
        },
        Rule {
            one: HITS,
            relation: Relation::Excludes,
            other: KNOWN,
            reason: "times of unknown paths take the place of hits",
            remedy: "count the hits of a program that counts all paths",
        },
    ],
};

impl ObservationProperties for CopyPart {
    fn kind(&self) -> &'static Kind {
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

/// Counter words that are indexed by sums of labels. The function's `dag` has only the edges of paths that this copy counts. Each of its
/// paths is counted in the word whose index is the sum of the labels on its edges. Words of other sums contain executions of paths that
/// this copy does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelWords {
    /// The unit's word for the sum 0.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// Whether they are followed by two words for the executions of labels and of all probes ([`LabelWords::hits`]).
    pub has_hits: bool,
    /// Label of each edge of the function's `dag`.
    pub labels: Vec<i64>,
}

impl LabelWords {
    /// Range of its words.
    pub fn range(&self) -> std::ops::Range<u64> {
        let hits = if self.has_hits { HIT_WORDS } else { 0 };
        self.first_word..self.first_word.saturating_add(self.words).saturating_add(hits)
    }

    /// The word that counts executions of labels, which is followed by that of all probes.
    pub fn hits(&self) -> Option<u64> {
        self.has_hits.then(|| self.first_word.saturating_add(self.words))
    }

    /// Returns whether there is a label for each of the edges of the function's acyclic graph.
    pub(crate) fn is_sound(&self, edges: usize) -> bool {
        self.labels.len() == edges
    }
}

/// Number of words for executions of probes.
const HIT_WORDS: u64 = 2;
