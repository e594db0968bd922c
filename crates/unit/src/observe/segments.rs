//! Interprocedural segments of a set, counted in the place of paths ([`crate::segments`]).
//!
//! Of a function's words the map says what each counts: a word is either each key's own, or those of interesting pairs are found by a
//! perfect hash and all others share one. It names callers by unit and linkage name, and needs no file of the build.

use super::{Admission, Kind, Observation, Observed};
use crate::Identity;
use crate::experiment::{ExperimentScheme, Settings, SettingsFile, identity};
use serde::{Deserialize, Serialize};
use trodden_flow::NumberingScheme;

/// Counts of interprocedural segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentCounts {
    /// The file of the set.
    pub set: Identity,
    /// How they are numbered.
    pub numbering: SegmentNumbering,
}

/// The numbering of interprocedural segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SegmentNumbering {
    /// Those of the set, one behind the other ([`trodden_flow::NumberingScheme::KnownTable`]).
    #[default]
    Minimal,
    /// Every path behind every context (Ball and Larus).
    BallLarus,
    /// As [`SegmentNumbering::Minimal`], found by precise selective labels of the paths that segments of the set have
    /// ([`trodden_flow::NumberingScheme::Pspp`]).
    PreciseSelective,
    /// Those of the set, by preferential numbering over contexts and paths, checked against the number of all.
    Preferential,
}

pub(super) static KIND: Kind = Kind {
    option: "--segments (segments=FILE)",
    observes: "counts of interprocedural segments, in the place of paths",
    apart: None,
    is_asked: |settings| settings.segments.is_some(),
    read: |settings| {
        let numbering = match settings.scheme {
            Some(ExperimentScheme::BallLarus) => SegmentNumbering::BallLarus,
            Some(ExperimentScheme::Interesting(NumberingScheme::Pspp)) => SegmentNumbering::PreciseSelective,
            Some(ExperimentScheme::Interesting(NumberingScheme::Ppp)) => SegmentNumbering::Preferential,
            _ => SegmentNumbering::Minimal,
        };
        Ok(identity("segments", &settings.segments)?.map(|set| Observation::SegmentCounts(SegmentCounts { set, numbering })))
    },
    restricted_by: &[],
    numberings: &[NumberingScheme::KnownTable, NumberingScheme::Ppp, NumberingScheme::Pspp],
    other_numberings: Admission::Refused {
        reason: "segments are numbered by the scheme known-table, ppp, pspp or ball-larus",
        remedy: "take one of these",
    },
    tables: Admission::Refused { reason: "counts of segments are in arrays", remedy: "leave --table-slots out" },
    shared_counters: Admission::Admitted,
    rules: &[],
};

impl Observed for SegmentCounts {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn write(&self, settings: &mut Settings) {
        settings.segments = Some(SettingsFile::Stored(self.set));
    }

    fn scheme(&self) -> ExperimentScheme {
        match self.numbering {
            SegmentNumbering::Minimal => ExperimentScheme::Interesting(NumberingScheme::KnownTable),
            SegmentNumbering::BallLarus => ExperimentScheme::BallLarus,
            SegmentNumbering::PreciseSelective => ExperimentScheme::Interesting(NumberingScheme::Pspp),
            SegmentNumbering::Preferential => ExperimentScheme::Interesting(NumberingScheme::Ppp),
        }
    }
}

/// Words of interprocedural segments ([`crate::segments`]) that end in a function. A pair of a context and a path has the key
/// the path's number with the context's in the bits above ([`SegmentWords::key`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentWords {
    /// The first of the unit's words that are the function's.
    pub first_word: u64,
    /// How many there are.
    pub words: u64,
    /// The callers' paths that are distinguished; the first has number 1. Calls of context 0 come from anywhere else.
    pub contexts: Vec<CallerPath>,
    /// For each word but the last its key, where only some pairs have words; all other pairs share the last word. Of a word without a
    /// pair: `u64::MAX`. Empty: each key is its word.
    pub keys: Vec<u64>,
    /// Pairs that are interesting, ascending.
    pub interesting: Vec<(u32, u64)>,
    /// Calls by this function whose context is not passed to the callee, since its code does not make them itself: callee and path.
    pub unplaced: Vec<UnplacedCall>,
    /// Calls of this function in the place of which its code is.
    pub inlined: u32,
    /// Calls of a copy of this function that takes its context as an argument; 0: there is none.
    pub duplicated: u32,
}

/// A path of a caller up to a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallerPath {
    /// Source of the caller's unit.
    pub unit: String,
    /// The caller's linkage name.
    pub name: String,
    /// Number of the caller's own context; 0: any.
    pub context: u32,
    /// The caller's path.
    pub path: u64,
}

/// A call on a segment that no instruction of the caller makes: a function that is not instrumented makes it, such as `qsort`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnplacedCall {
    /// Source of the callee's unit.
    pub unit: String,
    /// The callee's linkage name.
    pub name: String,
    /// The caller's path up to the call.
    pub path: u64,
}

impl SegmentWords {
    /// All its words, as a range.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// Bits of the path in a key, of a function with so many paths.
    pub fn path_bits(paths: u64) -> u32 {
        paths.max(1).next_power_of_two().trailing_zeros()
    }

    /// The key of a context and a path.
    pub fn key(paths: u64, context: u32, path: u64) -> u64 {
        u64::from(context) << SegmentWords::path_bits(paths) | path
    }

    /// The context and path that a word counts, of a function with so many paths. `None`: the word counts several pairs, or none.
    pub fn pair(&self, word: u64, paths: u64) -> Option<(u32, u64)> {
        let key = match self.keys.is_empty() {
            true => word,
            false => self.keys.get(word as usize).copied().filter(|key| *key != u64::MAX)?,
        };
        let bits = SegmentWords::path_bits(paths);
        let context = u32::try_from(key >> bits).ok().filter(|c| *c as usize <= self.contexts.len())?;
        Some((context, key & ((1 << bits) - 1))).filter(|(_, path)| *path < paths)
    }

    /// Whether words, contexts and pairs are such as a function with so many paths has.
    pub(crate) fn is_sound(&self, paths: u64) -> bool {
        let pairs = self.interesting.iter().all(|(context, path)| *context as usize <= self.contexts.len() && *path < paths);
        let rows = (self.contexts.len() as u64 + 1).saturating_mul(paths.max(1).next_power_of_two());
        let words = match self.keys.len() as u64 {
            0 => self.words == 0 || self.words == rows,
            keys => self.words == keys + 1 && self.keys.iter().all(|key| *key < rows || *key == u64::MAX),
        };
        pairs && words
    }
}
