//! What every plan costs at least.
//!
//! Proven for all plans that this module's [`Part`](super::Part)s can express:
//!
//! - A path is counted where its identity is decided or later, whenever control comes there. So the copy that profiles a path counts at least as
//!   often as its [end](super::ends) is taken ([`Bound::end`]); the path alone is a part of that ([`Bound::path`]).
//! - Paths with one end are told apart by labels before it, so at most one of them is without labels where all are profiled in one copy. If a
//!   copy profiles a path without labels, all others of that end have some there; if no copy does, each path has some in the copy that profiles it. Either way the
//!   copies together execute at least as many labels as the end is taken, less its most frequent path. One copy of `k` has a `k`-th of the sum
//!   ([`Bound::share`]).
//!
//! [`Bound::ideal`], a `k`-th of the sequential cost, is what nobody can promise and what plans are measured by: a plan may fall below it, where a copy
//! saves labels because it need not tell as many paths apart.

use super::hits::of_part;
use super::{Ends, Measure, Part, Procedure};
use std::collections::BTreeMap;

/// Bounds on the hits of the slowest copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Hits of sequential Ball-Larus.
    pub sequential: u64,
    /// That divided by the number of copies, rounded up. Not a bound, but the ideal.
    pub ideal: u64,
    /// Executions of the most frequent path.
    pub path: u64,
    /// Executions of the most frequent end.
    pub end: u64,
    /// An equal share of what all copies have to execute together.
    pub share: u64,
}

impl Bound {
    /// No plan's slowest copy is hit less often than this.
    pub fn proven(&self) -> u64 {
        self.end.max(self.share)
    }

    /// What a plan can aim at: the ideal, or what is proven where that is more.
    pub fn aim(&self) -> u64 {
        self.ideal.max(self.proven())
    }
}

/// The bounds for `copies` copies. Under [`Measure::Labels`] a copy that profiles a single path needs no label, so only the share is bounded, and only
/// within ends.
pub fn bound(procedures: &[Procedure], copies: usize, measure: Measure) -> Bound {
    let mut bound = Bound::default();
    let mut together = 0;
    for procedure in procedures {
        let ends = Ends::of(&procedure.dag);
        let (counts, labels) = (counts(procedure, &ends), labels(procedure));
        together += labels;
        if measure == Measure::All {
            together += counts.iter().sum::<u64>();
            bound.end = bound.end.max(counts.into_iter().max().unwrap_or(0));
            bound.path = bound.path.max(procedure.paths.iter().map(|p| p.count).max().unwrap_or(0));
        }
        let whole = Part::whole(&procedure.dag, &procedure.frequencies, measure);
        bound.sequential += whole.map_or(0, |part| of_part(procedure, &part).of(measure));
    }
    let share = |sum: u64| sum.div_ceil(copies.max(1) as u64);
    bound.ideal = share(bound.sequential);
    bound.share = share(together);
    bound
}

fn counts(procedure: &Procedure, ends: &Ends) -> Vec<u64> {
    ends.edges().iter().map(|e| procedure.frequencies[e.index()]).collect()
}

/// Labels that all copies have to execute together: at each end all its paths' executions but the most frequent one's. Paths
/// in passing execute those of other paths.
fn labels(procedure: &Procedure) -> u64 {
    let mut of_end = BTreeMap::<_, (u64, u64)>::new();
    for path in procedure.paths.iter().filter(|p| !p.in_passing) {
        let (sum, most) = of_end.entry(path.end).or_default();
        *sum += path.count;
        *most = (*most).max(path.count);
    }
    of_end.values().map(|(sum, most)| sum - most).sum()
}
