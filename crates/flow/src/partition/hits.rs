//! What a plan costs: executions of its probes, exactly, from the frequencies of edges.
//!
//! The sum over paths of executions times probes on the path is the sum over probes of the executions of their edges.
//! So a plan's hits need no list of paths, and thousands of plans can be compared. O(edges) for each part.

use super::{CopyPlan, Measure, Part, PartitionPlan, Procedure};

/// Executions of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Edges with an increment other than zero, as the paper counts ([`Measure::Labels`]).
    pub labels: u64,
    /// Counts of paths, and increments that are not part of a count ([`Measure::All`]).
    pub all: u64,
}

impl Hits {
    /// One of the two.
    pub fn of(self, measure: Measure) -> u64 {
        match measure {
            Measure::Labels => self.labels,
            Measure::All => self.all,
        }
    }
}

impl std::iter::Sum for Hits {
    fn sum<I: Iterator<Item = Hits>>(all: I) -> Hits {
        all.fold(Hits::default(), |a, b| Hits { labels: a.labels + b.labels, all: a.all + b.all })
    }
}

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
