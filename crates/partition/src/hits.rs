//! The exact cost of a plan: executions of its probes, computed from the frequencies of edges.
//!
//! The sum over paths of (executions x probes on the path) equals the sum over probes of the executions of their edges, so no list of
//! paths is needed. O(edges) for each part.

use crate::{CopyPlan, PartitionPlan, Procedure};
use trodden_flow::part::{Measure, Part, ProbeHits};

/// Returns how often the probes of a part of a procedure are executed.
pub fn part_hits(procedure: &Procedure, part: &Part) -> ProbeHits {
    let mut hits = ProbeHits::default();
    for (edge, &executed) in procedure.dag.edge_ids().zip(&procedure.frequencies) {
        let labelled = part.increments[edge.index()] != 0;
        hits.labels += if labelled { executed } else { 0 };
        hits.all += if part.counted.contains(edge) || labelled && !part.ends.contains(edge) { executed } else { 0 };
    }
    hits
}

/// Returns how often the probes of a copy are executed.
pub fn copy_hits(procedures: &[Procedure], copy: &CopyPlan) -> ProbeHits {
    let parts = procedures.iter().zip(&copy.parts);
    parts.filter_map(|(procedure, part)| Some(part_hits(procedure, part.as_ref()?))).sum()
}

/// Returns how often the probes of the slowest copy are executed.
pub fn slowest_copy_hits(procedures: &[Procedure], plan: &PartitionPlan, measure: Measure) -> u64 {
    plan.copies.iter().map(|c| copy_hits(procedures, c).of(measure)).max().unwrap_or(0)
}
