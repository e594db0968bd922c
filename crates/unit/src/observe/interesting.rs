//! Interesting paths: those of a set are counted separately, and all others of a function together; or all paths of the functions that the
//! set names.

use super::{Admission, Kind, Observation, Observed};
use crate::Identity;
use crate::experiment::{
    Choice, DEFAULT_TIME_LIMIT_S, ExperimentError, ExperimentScheme, Relation, Rule, Settings, SettingsFile, identity,
};
use serde::{Deserialize, Serialize};
use trodden_flow::NumberingScheme;

/// Counts of the paths of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterestingPaths {
    /// The file of the set.
    pub set: Identity,
    /// How they are numbered; `None`: all paths of the functions that the set names are observed.
    pub numbering: Option<NumberingScheme>,
    /// How long [`NumberingScheme::PppOptimal`] may search for the numbers of one function, in seconds.
    pub time_limit_s: u64,
}

pub(super) static KIND: Kind = Kind {
    option: "--interesting",
    observes: "counts of interesting paths only",
    apart: None,
    is_asked: |settings| settings.interesting.is_some(),
    read: |settings| Ok(InterestingPaths::from_settings(settings)?.map(Observation::InterestingPaths)),
    restricted_by: &[],
    numberings: &NumberingScheme::ALL,
    other_numberings: Admission::Admitted,
    tables: Admission::Refused { reason: "each interesting path has a word of its own", remedy: "leave one out" },
    shared_counters: Admission::Admitted,
    rules: &[Rule {
        one: Choice { spelling: "--time-limit", is_made: |settings| settings.time_limit_s.is_some() },
        relation: Relation::Needs,
        other: Choice {
            spelling: "--scheme ppp-optimal",
            is_made: |settings| settings.scheme == Some(ExperimentScheme::Interesting(NumberingScheme::PppOptimal)),
        },
        reason: "only that scheme searches for as long as it may",
        remedy: "leave --time-limit out, or take --scheme ppp-optimal",
    }],
};

impl InterestingPaths {
    /// The paths that settings name, by the numbering that they say.
    pub(super) fn from_settings(settings: &Settings) -> Result<Option<InterestingPaths>, ExperimentError> {
        let numbering = match settings.scheme {
            Some(ExperimentScheme::Interesting(numbering)) => Some(numbering),
            Some(ExperimentScheme::BallLarus) => None,
            None => Some(NumberingScheme::KnownTable),
        };
        let time_limit_s = settings.time_limit_s.unwrap_or(DEFAULT_TIME_LIMIT_S);
        Ok(identity("interesting", &settings.interesting)?.map(|set| InterestingPaths { set, numbering, time_limit_s }))
    }
}

impl Observed for InterestingPaths {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.interesting = Some(SettingsFile::Stored(self.set));
        settings.time_limit_s = (self.numbering == Some(NumberingScheme::PppOptimal)).then_some(self.time_limit_s);
    }

    fn scheme(&self) -> ExperimentScheme {
        self.numbering.map_or(ExperimentScheme::BallLarus, ExperimentScheme::Interesting)
    }

    fn interesting(&self) -> Option<InterestingPaths> {
        Some(*self)
    }
}

/// Words of the interesting paths. Every other word of the range counts paths that are not, the last one among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterestingWords {
    /// The first of the unit's words that are the function's.
    pub first_word: u64,
    /// How many there are: one at least.
    pub words: u64,
    /// Words, counted from the first, with the numbers of their paths; ascending.
    pub paths: Vec<(u64, u64)>,
    /// Other paths that these words count, too.
    pub aliases: StorageAliases,
    /// Whether it was proven that these words count these paths, not only tried on some.
    pub proven: bool,
}

/// Paths that are counted as others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageAliases {
    /// So many of the function's paths.
    Exactly(u64),
    /// So many of those that were tried.
    Drawn {
        /// Paths counted as others.
        aliases: u64,
        /// Paths tried.
        of: u64,
    },
}

impl StorageAliases {
    /// Whether none was found.
    pub fn is_none(self) -> bool {
        matches!(self, StorageAliases::Exactly(0) | StorageAliases::Drawn { aliases: 0, .. })
    }
}

impl InterestingWords {
    /// All its words, as a range.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// The word that counts other paths.
    pub fn others(&self) -> u64 {
        self.range().end.saturating_sub(1)
    }

    /// Whether words and paths are such as a function with so many paths has.
    pub(crate) fn is_sound(&self, paths: u64) -> bool {
        let is_known = |&(word, path): &(u64, u64)| word < self.words.saturating_sub(1) && path < paths;
        self.words > 0 && self.paths.is_sorted_by(|a, b| a.0 < b.0) && self.paths.iter().all(is_known)
    }
}
