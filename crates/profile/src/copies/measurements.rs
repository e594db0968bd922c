//! Measurements of a program's copies, from which their costs are computed.

use crate::model::Profile;
use serde::{Deserialize, Serialize};
use trodden_partition::{CopyPlan, Procedure};

/// Times of a run of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTimes {
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Processor time, of user and system, in nanoseconds.
    pub cpu_ns: u64,
    /// Start in nanoseconds since 1970.
    pub started_ns: u64,
    /// Name of the computer.
    pub host: String,
    /// Whether the addresses of the program's memory were the same in every run.
    pub fixed_addresses: bool,
}

/// Measurements of all copies.
#[derive(Clone, Debug)]
pub struct CopyMeasurements {
    /// Path of the program.
    pub program: String,
    /// Whether edges are counted instead of paths.
    pub edges: bool,
    /// Whether the program counts only unknown paths; then the executions are unknown.
    pub is_residual: bool,
    /// The plan of each copy.
    pub plans: Vec<CopyPlan>,
    /// Plan of a single copy that counts all paths, with labels placed by the same frequencies; `None` if edges are counted.
    pub whole: Option<CopyPlan>,
    /// The program's functions with the counts of all copies together, in the order of the plans; empty for a residual program.
    pub procedures: Vec<Procedure>,
    /// Number of paths on whose counts several copies agree.
    pub confirmed: u64,
    /// Times of each copy.
    pub times: Vec<CopyTimes>,
    /// Number of times each copy was started.
    pub attempts: Vec<u32>,
    /// For each copy, its executions of labels and counts, and of labels alone, if the copies counted these themselves.
    pub counted_hits: Option<Vec<[u64; 2]>>,
    /// Times of the program without counting, and with one program that counts everything, each run alone.
    pub baseline: Option<[CopyTimes; 2]>,
}

/// Returns the executions of labels and counts, and of labels alone, that a copy counted itself.
pub fn counted_hits(profile: &Profile) -> [u64; 2] {
    let mut sums = [0; 2];
    for (_, unit, function) in profile.functions() {
        let Some(first) = function.label_words().and_then(|words| words.hits()) else { continue };
        let word = |at: u64| unit.counts.executions_of(at);
        sums[0] += word(first + 1);
        sums[1] += word(first);
    }
    sums
}
