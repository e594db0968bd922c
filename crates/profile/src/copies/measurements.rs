//! What copies of a program took and executed, from which their costs follow.

use crate::model::Profile;
use serde::{Deserialize, Serialize};
use trodden_partition::{CopyPlan, Procedure};

/// What a copy took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTimes {
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Processor time, of user and system, in nanoseconds.
    pub cpu_ns: u64,
    /// Start, nanoseconds since 1970.
    pub started_ns: u64,
    /// Name of the computer.
    pub host: String,
    /// Addresses of the program's memory were the same in every run.
    pub fixed_addresses: bool,
}

/// What copies took and executed.
#[derive(Clone, Debug)]
pub struct CopyMeasurements {
    /// Path of the program.
    pub program: String,
    /// Whether edges are counted, not paths.
    pub edges: bool,
    /// Whether the program counts unknown paths only; then nothing is known of executions.
    pub is_residual: bool,
    /// The part of each copy.
    pub plans: Vec<CopyPlan>,
    /// The part of one copy that counts all paths, its labels placed by what the plans were made from; only of copies that count paths.
    pub whole: Option<CopyPlan>,
    /// The program's functions with what all copies together counted, in the order of the plans; none of a residual program.
    pub procedures: Vec<Procedure>,
    /// Paths on whose counts several copies agree.
    pub confirmed: u64,
    /// What each copy took.
    pub times: Vec<CopyTimes>,
    /// How often each copy was started.
    pub attempts: Vec<u32>,
    /// Executions of labels and counts, and of labels alone, as each copy counted them itself, if it did.
    pub counted_hits: Option<Vec<[u64; 2]>>,
    /// What the program took without counting, and with all of it in one program, each alone.
    pub baseline: Option<[CopyTimes; 2]>,
}

/// Hits that a copy counted itself: all, and of labels.
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
