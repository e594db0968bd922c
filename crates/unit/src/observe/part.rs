//! One copy's part: what one of several copies of a program counts, while others count the rest. A copy of a residual build has whole
//! functions, each as that build has it.

use super::{Admission, CounterWords, Kind, Observation, Observed, unknown};
use crate::Identity;
use crate::experiment::{Choice, Relation, Rule, Settings, SettingsFile, identity};
use serde::{Deserialize, Serialize};

/// What one of several copies of a program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyPart {
    /// The file of the copy's part.
    pub file: Identity,
    /// The unit of which this one is made, in the program whose counting is divided.
    pub origin: Identity,
    /// The file of the known paths, if the program counts unknown paths only.
    pub known: Option<Identity>,
    /// Executions of the copy's probes are counted, too.
    pub count_hits: bool,
}

const PART: Choice = Choice { spelling: "a copy's part (part=FILE)", is_made: |settings| settings.part.is_some() };
const ORIGIN: Choice = Choice { spelling: "the unit of a copy (origin=UNIT)", is_made: |settings| settings.origin.is_some() };
const HITS: Choice = Choice { spelling: "--count-hits (count-hits=on)", is_made: |settings| settings.count_hits == Some(true) };
const KNOWN: Choice = Choice { spelling: "--residual (known=FILE)", is_made: |settings| settings.known.is_some() };

const UNIT_OF_A_PART: &str = "a part is known by its unit";
const MADE_BY_RECORDING: &str = "let `trodden record --copies` make copies, which gives both";

pub(super) static KIND: Kind = Kind {
    option: PART.spelling,
    observes: "a copy's part of the counts of all paths, or of unknown ones",
    apart: Some("build the program for copies without the other"),
    is_asked: PART.is_made,
    read: |settings| {
        let (known, count_hits) = (identity("known", &settings.known)?, settings.count_hits.unwrap_or(false));
        let part = identity("part", &settings.part)?.zip(settings.origin);
        Ok(part.map(|(file, origin)| Observation::CopyPart(CopyPart { file, origin, known, count_hits })))
    },
    restricted_by: &[&unknown::KIND],
    numberings: &[],
    other_numberings: Admission::Refused {
        reason: "copies share all paths of a program",
        remedy: "build the program with the scheme ball-larus for copies",
    },
    tables: Admission::Refused { reason: "a copy's counts are in arrays", remedy: "build the program without --table-slots for copies" },
    shared_counters: Admission::Admitted,
    rules: &[
        Rule { one: PART, relation: Relation::Needs, other: ORIGIN, reason: UNIT_OF_A_PART, remedy: MADE_BY_RECORDING },
        Rule { one: ORIGIN, relation: Relation::Needs, other: PART, reason: UNIT_OF_A_PART, remedy: MADE_BY_RECORDING },
        Rule {
            one: HITS,
            relation: Relation::Needs,
            other: PART,
            reason: "hits are those of a copy's probes",
            remedy: "let `trodden-lab with --count-hits -- record --copies K` make copies",
        },
        Rule {
            one: HITS,
            relation: Relation::Excludes,
            other: KNOWN,
            reason: "unknown paths have times where hits would be",
            remedy: "count hits of a program that counts all paths",
        },
    ],
};

impl Observed for CopyPart {
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

/// Words of counts by sums of labels. The function's `dag` has the edges of the paths that are counted here and no
/// others; each of its paths is counted in the word whose number is the sum of the labels on its edges. Words of other
/// sums hold executions of paths that are counted elsewhere, or nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelWords {
    /// The unit's word of the sum 0.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// Behind them lie two more, for executions of labels and of all probes ([`LabelWords::hits`]).
    pub with_hits: bool,
    /// A label for each edge of the function's `dag`.
    pub labels: Vec<i64>,
}

impl LabelWords {
    /// All its words, as a range.
    pub fn range(&self) -> std::ops::Range<u64> {
        let hits = if self.with_hits { HIT_WORDS } else { 0 };
        self.first_word..self.first_word.saturating_add(self.words).saturating_add(hits)
    }

    /// The word of executions of labels; behind it that of executions of all probes.
    pub fn hits(&self) -> Option<u64> {
        self.with_hits.then(|| self.first_word.saturating_add(self.words))
    }

    /// Whether there is a label for each of so many edges of the function's acyclic graph.
    pub(crate) fn is_sound(&self, edges: usize) -> bool {
        self.labels.len() == edges
    }
}

/// Words for hits of probes.
const HIT_WORDS: u64 = 2;
