//! Builds that count segments (paths across calls), which are given by a set, instead of paths ([`crate::segments`]).
//!
//! A segment is a pair of a context, which is the callers' paths, and a path of the last callee. The map says what each of a function's
//! words counts. Either each possible pair has a word, or only interesting pairs have words, which are found by a perfect hash function,
//! and all other pairs share one word. The map identifies callers by unit and linkage name, so it can be read without the set.

use super::{FeatureAdmission, Observation, ObservationKind, ObservationProperties};
use crate::Identity;
use crate::experiment::{ExperimentScheme, Settings, SettingsFile, stored_input_identity};
use serde::{Deserialize, Serialize};
use trodden_flow::NumberingScheme;

/// Counts of the segments in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentCounts {
    /// File of the set.
    pub set: Identity,
    /// How the segments are numbered.
    pub numbering: SegmentNumbering,
}

/// How segments are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SegmentNumbering {
    /// The segments in the set have consecutive numbers ([`trodden_flow::NumberingScheme::KnownTable`]).
    #[default]
    Minimal,
    /// Every path has a number in every context (Ball and Larus).
    BallLarus,
    /// The same numbers as with [`SegmentNumbering::Minimal`], but segments are recognised by precise selective labels of their paths
    /// ([`trodden_flow::NumberingScheme::Pspp`]).
    PreciseSelective,
    /// The segments in the set are recognised by a preferential numbering, and by a check of the pair's number among all pairs of context
    /// and path.
    Preferential,
}

pub(super) static KIND: ObservationKind = ObservationKind {
    option: "--segments (segments=FILE)",
    observes: "counts of interprocedural segments instead of paths",
    conflict_remedy: None,
    is_requested: |settings| settings.segments.is_some(),
    read: |settings| {
        let numbering = match settings.scheme {
            Some(ExperimentScheme::BallLarus) => SegmentNumbering::BallLarus,
            Some(ExperimentScheme::Interesting(NumberingScheme::Pspp)) => SegmentNumbering::PreciseSelective,
            Some(ExperimentScheme::Interesting(NumberingScheme::Ppp)) => SegmentNumbering::Preferential,
            _ => SegmentNumbering::Minimal,
        };
        Ok(stored_input_identity("segments", &settings.segments)?.map(|set| Observation::SegmentCounts(SegmentCounts { set, numbering })))
    },
    restricted_by: &[],
    numberings: &[NumberingScheme::KnownTable, NumberingScheme::Ppp, NumberingScheme::Pspp],
    other_numberings: FeatureAdmission::Rejected {
        reason: "segments are numbered by the scheme known-table, ppp, pspp or ball-larus",
        remedy: "use one of these",
    },
    tables: FeatureAdmission::Rejected { reason: "segments are counted in arrays", remedy: "omit --table-slots" },
    shared_counters: FeatureAdmission::Admitted,
    rules: &[],
};

impl ObservationProperties for SegmentCounts {
    fn kind(&self) -> &'static ObservationKind {
        &KIND
    }

    fn write_to_settings(&self, settings: &mut Settings) {
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

/// Words in which a function counts the segments that end in it ([`crate::segments`]). A segment is a pair of a context (the callers'
/// paths) and a path of the function. The pair is identified by a key with the path's ID in the low bits and the number of the context
/// above ([`SegmentWords::key`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentWords {
    /// Index of the function's first word among the unit's words.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// The contexts that are distinguished, each given by the last caller's path. The first is context 1. Context 0 stands for all other
    /// calls.
    pub contexts: Vec<CallerPath>,
    /// If only some pairs have words: the key that each word counts, without the last word, which all other pairs share. A word that counts
    /// no pair has the key `u64::MAX`. Empty if each key is the index of its word.
    pub keys: Vec<u64>,
    /// Interesting pairs of context and path ID, ascending.
    pub interesting: Vec<(u32, u64)>,
    /// Calls that uninstrumented code makes, so that the context cannot be passed to the callee.
    pub unplaced: Vec<UnplacedCall>,
    /// Number of call sites at which this function was inlined.
    pub inlined: u32,
    /// Number of call sites that call a duplicate of this function, to which they pass the context as an additional argument; 0 if there is
    /// no duplicate.
    pub duplicated: u32,
}

/// The path of a caller up to a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallerPath {
    /// Source file of the caller's unit.
    pub unit: String,
    /// Linkage name of the caller.
    pub name: String,
    /// Number of the caller's own context; 0 if any context is meant.
    pub context: u32,
    /// ID of the caller's path.
    pub path: u64,
}

/// A call in a segment that is made by uninstrumented code, such as `qsort`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnplacedCall {
    /// Source file of the callee's unit.
    pub unit: String,
    /// Linkage name of the callee.
    pub name: String,
    /// ID of the caller's path up to the call.
    pub path: u64,
}

impl SegmentWords {
    /// Returns the range of the function's words in the unit.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// Returns the number of bits that a key has for the path, in a function with `paths` paths.
    pub fn bits_for_path(paths: u64) -> u32 {
        paths.max(1).next_power_of_two().trailing_zeros()
    }

    /// Returns the key of a pair of context and path, in a function with `paths` paths.
    pub fn key(paths: u64, context: u32, path: u64) -> u64 {
        u64::from(context) << SegmentWords::bits_for_path(paths) | path
    }

    /// Returns the pair of context and path that a word counts, in a function with `paths` paths. `None` if the word does not count exactly
    /// one pair.
    pub fn pair(&self, word: u64, paths: u64) -> Option<(u32, u64)> {
        let key = match self.keys.is_empty() {
            true => word,
            false => self.keys.get(word as usize).copied().filter(|key| *key != u64::MAX)?,
        };
        let bits = SegmentWords::bits_for_path(paths);
        let context = u32::try_from(key >> bits).ok().filter(|c| *c as usize <= self.contexts.len())?;
        Some((context, key & ((1 << bits) - 1))).filter(|(_, path)| *path < paths)
    }

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
