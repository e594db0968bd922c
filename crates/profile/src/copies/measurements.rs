//! Times and counts of all instrumented copies of a program, from which the overhead of counting is computed.

use crate::model::Profile;
use serde::{Deserialize, Serialize};
use trodden_partition::{CopyPlan, Procedure};

/// Times of one run of an instrumented copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTimes {
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Processor time (user and system) in nanoseconds.
    pub cpu_ns: u64,
    /// Start of the run, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Name of the computer.
    pub host: String,
    /// Whether address space layout randomisation was disabled.
    pub fixed_addresses: bool,
}

/// Measurements of all instrumented copies of a program.
#[derive(Clone, Debug)]
pub struct CopyMeasurements {
    /// Path of the program.
    pub program: String,
    /// Whether the copies count edges instead of paths.
    pub edges: bool,
    /// Whether the program counts only paths that are not in a list of known paths. The total number of executions is then unknown.
    pub is_residual: bool,
    /// The plan of each copy.
    pub plans: Vec<CopyPlan>,
    /// Plan for a single copy that counts all paths, optimised for the same execution frequencies; `None` if edges are counted.
    pub whole: Option<CopyPlan>,
    /// The program's functions with the counts of all copies together, in the same order as in the plans; empty if only unknown paths are
    /// counted.
    pub procedures: Vec<Procedure>,
    /// Number of paths for which two or more copies have the same count.
    pub confirmed: u64,
    /// Times of each copy.
    pub times: Vec<CopyTimes>,
    /// Number of times each copy was started.
    pub attempts: Vec<u32>,
    /// For each copy, the result of [`counted_probe_hits`]; `None` if the copies did not count how often their probes were executed.
    pub counted_hits: Option<Vec<[u64; 2]>>,
    /// Times of the uninstrumented program and of an instrumented program that counts all paths, with nothing else running on the computer.
    pub baseline: Option<[CopyTimes; 2]>,
}

/// Returns how many probes (labels and counter increments) a copy executed, and how many of them were labels. Copies count their probes
/// only on request.
pub fn counted_probe_hits(profile: &Profile) -> [u64; 2] {
    let mut sums = [0; 2];
    for (_, unit, function) in profile.functions() {
        let Some(first) = function.label_words().and_then(|words| words.hit_counter_index()) else { continue };
        let executions = |counter: u64| unit.counts.executions_of_counter(counter);
        sums[0] += executions(first + 1);
        sums[1] += executions(first);
    }
    sums
}
