//! What a plan costs: executions of its probes, exactly, from the frequencies of edges.
//!
//! The sum over paths of executions times probes on the path is the sum over probes of the executions of their edges.
//! So a plan's hits need no list of paths, and thousands of plans can be compared. O(edges) for each part.

use crate::{CopyPlan, PartitionPlan, Procedure};
use trodden_flow::part::{Hits, Measure, Part};

/// Hits of a copy's part of a procedure.
pub fn of_part(procedure: &Procedure, part: &Part) -> Hits {
    let mut hits = Hits::default();
    for (at, &executed) in procedure.frequencies.iter().enumerate() {
        let labelled = part.increments[at] != 0;
        hits.labels += if labelled { executed } else { 0 };
        hits.all += if part.counted[at] || labelled && !part.ends[at] { executed } else { 0 };
    }
    hits
}

/// Hits of a copy.
pub fn of_copy(procedures: &[Procedure], copy: &CopyPlan) -> Hits {
    let parts = procedures.iter().zip(&copy.parts);
    parts.filter_map(|(procedure, part)| Some(of_part(procedure, part.as_ref()?))).sum()
}

/// Hits of the slowest copy.
pub fn slowest(procedures: &[Procedure], plan: &PartitionPlan, measure: Measure) -> u64 {
    plan.copies.iter().map(|c| of_copy(procedures, c).of(measure)).max().unwrap_or(0)
}
