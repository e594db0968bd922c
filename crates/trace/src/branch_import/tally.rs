//! Counts the paths found while branches are imported.

use std::collections::{BTreeMap, HashMap};
use trodden_binary::ProbedFunction;
use trodden_profile::UnattributedBranches;

/// Identifies a path by image, function and path number.
pub type TallyPathKey = (usize, ProbedFunction, i64);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TallyPath {
    /// Number of times the complete path was seen.
    pub times: u64,
    /// Estimate of the number of executions: the sum of the inverse probabilities of seeing the complete path.
    pub weight: f64,
}

#[derive(Clone, Debug, Default)]
pub struct BranchPathTally {
    pub paths: HashMap<TallyPathKey, TallyPath>,
    pub whole_paths: u64,
    pub losses: UnattributedBranches,
    /// Number of inconsistent or ambiguous block sequences by function.
    pub uncertain: BTreeMap<(usize, ProbedFunction), u64>,
}

impl BranchPathTally {
    pub fn count(&mut self, path: TallyPathKey, weight: f64) {
        let seen = self.paths.entry(path).or_default();
        seen.times += 1;
        seen.weight += weight;
    }
}
