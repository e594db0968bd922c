//! Builds that count the interprocedural segments of a set instead of paths ([`crate::segments`]).
//!
//! The map says what each of a function's words counts. Either each key has a word, or only interesting pairs have words, which a perfect
//! hash finds, and all other pairs share one word. The map identifies callers by unit and linkage name, so it can be read without the set.

use super::{Admission, Observation, ObservationKind, ObservationProperties};
use crate::Identity;
use crate::experiment::{ExperimentScheme, Settings, SettingsFile, stored_identity};
use serde::{Deserialize, Serialize};
use trodden_flow::NumberingScheme;

/// Counts of interprocedural segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentCounts {
    /// File of the set.
    pub set: Identity,
    /// Numbering of the segments.
    pub numbering: SegmentNumbering,
}

/// The numbering of interprocedural segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SegmentNumbering {
    /// The segments of the set, consecutively ([`trodden_flow::NumberingScheme::KnownTable`]).
    #[default]
    Minimal,
    /// Every path in every context (Ball and Larus).
    BallLarus,
    /// The same segments as [`SegmentNumbering::Minimal`], recognised by precise selective labels of their paths
    /// ([`trodden_flow::NumberingScheme::Pspp`]).
    PreciseSelective,
    /// The segments of the set, recognised by preferential numbering and a check of the pair's number among all pairs.
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
        Ok(stored_identity("segments", &settings.segments)?.map(|set| Observation::SegmentCounts(SegmentCounts { set, numbering })))
    },
    restricted_by: &[],
    numberings: &[NumberingScheme::KnownTable, NumberingScheme::Ppp, NumberingScheme::Pspp],
    other_numberings: Admission::Rejected {
        reason: "segments are numbered by the scheme known-table, ppp, pspp or ball-larus",
        remedy: "use one of these",
    },
    tables: Admission::Rejected { reason: "segments are counted in arrays", remedy: "omit --table-slots" },
    shared_counters: Admission::Admitted,
    rules: &[],
};

impl ObservationProperties for SegmentCounts {
    fn kind(&self) -> &'static ObservationKind {
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

/// Counter words of the interprocedural segments ([`crate::segments`]) that end in a function. A pair of a context and a path is identified
/// by a key, with the path's ID in the low bits and the context's number in the bits above ([`SegmentWords::key`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentWords {
    /// Index of the function's first word among the unit's words.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// The callers' paths that are distinguished; the first is context 1. Context 0 represents all other calls.
    pub contexts: Vec<CallerPath>,
    /// If only some pairs have words: the key of each word except the last, which all other pairs share, or `u64::MAX` for a word without a
    /// pair. Empty if each key is the index of its word.
    pub keys: Vec<u64>,
    /// Interesting pairs, ascending.
    pub interesting: Vec<(u32, u64)>,
    /// Calls that are not made by this function's own code, so that their context cannot be passed to the callee.
    pub unplaced: Vec<UnplacedCall>,
    /// Number of call sites at which this function was inlined.
    pub inlined: u32,
    /// Number of call sites that call a copy of this function with the context as an additional argument; 0 if there is no copy.
    pub duplicated: u32,
}

/// A caller's path up to a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallerPath {
    /// Source of the caller's unit.
    pub unit: String,
    /// The caller's linkage name.
    pub name: String,
    /// Number of the caller's own context; 0 for any context.
    pub context: u32,
    /// ID of the caller's path.
    pub path: u64,
}

/// A call on a segment that uninstrumented code, such as `qsort`, makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnplacedCall {
    /// Source of the callee's unit.
    pub unit: String,
    /// The callee's linkage name.
    pub name: String,
    /// ID of the caller's path up to the call.
    pub path: u64,
}

impl SegmentWords {
    /// Returns the range of its words in the unit.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// Returns the number of bits for the path in a key of a function with `paths` paths.
    pub fn path_bits(paths: u64) -> u32 {
        paths.max(1).next_power_of_two().trailing_zeros()
    }

    /// Returns the key of a context and a path.
    pub fn key(paths: u64, context: u32, path: u64) -> u64 {
        u64::from(context) << SegmentWords::path_bits(paths) | path
    }

    /// Returns the context and path that a word of a function with `paths` paths counts; `None` if the word does not count exactly one
    /// pair.
    pub fn pair(&self, word: u64, paths: u64) -> Option<(u32, u64)> {
        let key = match self.keys.is_empty() {
            true => word,
            false => self.keys.get(word as usize).copied().filter(|key| *key != u64::MAX)?,
        };
        let bits = SegmentWords::path_bits(paths);
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
