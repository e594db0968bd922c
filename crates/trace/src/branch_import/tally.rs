//! Counts of paths while branches are followed.

use std::collections::{BTreeMap, HashMap};
use trodden_binary::ProbedFunction;
use trodden_profile::Losses;

/// A path of a function of an image.
pub type TallyPathKey = (usize, ProbedFunction, i64);

/// How often a path was seen, and how much that stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TallyPath {
    /// Times it was seen.
    pub times: u64,
    /// The same, each divided by its chance to be seen whole.
    pub weight: f64,
}

/// All that was seen.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By path.
    pub paths: HashMap<TallyPathKey, TallyPath>,
    /// Whole paths.
    pub whole: u64,
    /// What was not counted.
    pub losses: Losses,
    /// Functions with sequences of blocks that were inconsistent or ambiguous, each with how many.
    pub uncertain: BTreeMap<(usize, ProbedFunction), u64>,
}

impl Tally {
    /// Counts a path.
    pub fn count(&mut self, path: TallyPathKey, weight: f64) {
        let seen = self.paths.entry(path).or_default();
        seen.times += 1;
        seen.weight += weight;
    }
}
