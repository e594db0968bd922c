//! What every plan costs at least.
//!
//! Proven for all plans that this module's [`Part`](super::Part)s can express, those too that divide the paths of one [end](super::ends) among copies:
//!
//! - A path is counted where its identity is decided or later, whenever control comes there. So a copy that profiles any path of an end counts as often as the
//!   end is taken; the path alone is a part of that ([`Bound::path`]).
//! - In a copy that profiles a path there are labels wherever another path of its end differs, so the labels of all copies together tell all paths of each
//!   procedure apart. They execute at least what [`apart::least_labels`] says, and also as often as each end is taken, less its most frequent path: at most one path of an
//!   end is without labels, or, if several are, each is in a copy where all others have some.
//!   One copy of `k` has a `k`-th of these labels and of one count of each end ([`Bound::share`]).
//! - If `m` copies profile paths of an end, one of them has an `m`-th of the labels that tell the end's paths apart, and no less than tell the dearest path from the others
//!   ([`alone`]), besides the end's counts; and all together count the end `m` times. The least of this over all `m` up to `k` is [`Bound::end`].
//! - Two of the `k + 1` ends taken most often are counted in one copy, three of the first `2k + 1`, and so on ([`Bound::together`]).
//!
//! [`Bound::ideal`], a `k`-th of the sequential cost, is what nobody can promise and what plans are measured by: a plan may fall below it, where a copy
//! saves labels because it need not tell as many paths apart.

use super::alone::least_labels_of_one;
use super::apart::least_labels;
use super::hits::of_part;
use super::{Ends, Measure, Part, Procedure};
use crate::dag::DagEdgeId;
use std::cmp::Reverse;
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
    /// Of the dearest end: its executions, and those of labels that tell its paths apart.
    pub end: u64,
    /// Executions of ends that some copy has to count together.
    pub together: u64,
    /// An equal share of what all copies have to execute together.
    pub share: u64,
}

impl Bound {
    /// No plan's slowest copy is hit less often than this.
    pub fn proven(&self) -> u64 {
        self.end.max(self.together).max(self.share)
    }

    /// What a plan can aim at: the ideal, or what is proven where that is more.
    pub fn aim(&self) -> u64 {
        self.ideal.max(self.proven())
    }
}

/// The bounds for `copies` copies. Under [`Measure::Labels`] a copy that profiles a single path needs no label but those that tell it from others, so only the share is bounded.
pub fn bound(procedures: &[Procedure], copies: usize, measure: Measure) -> Bound {
    let copies = copies.max(1) as u64;
    let known: Vec<Known> = procedures.iter().map(|p| Known::of(p, measure)).collect();
    let mut bound = Bound { sequential: known.iter().map(|k| k.sequential).sum(), ..Bound::default() };
    bound.ideal = bound.sequential.div_ceil(copies);
    let mut sum: u64 = known.iter().map(|k| k.labels).sum();
    if measure == Measure::All {
        let mut counts: Vec<u64> = known.iter().flat_map(|k| k.counts.iter().map(|c| c.1)).collect();
        counts.sort_unstable_by_key(|c| Reverse(*c));
        sum += counts.iter().sum::<u64>();
        bound.path = procedures.iter().flat_map(|p| &p.paths).map(|p| p.count).max().unwrap_or(0);
        bound.together = together(&counts, copies as usize);
        bound.end = dearest_end(&known, copies, sum);
    }
    bound.share = sum.div_ceil(copies);
    bound
}

/// What a procedure costs in one copy, and at least.
struct Known<'a> {
    procedure: &'a Procedure,
    ends: Ends,
    /// Executions of ends.
    counts: Vec<(DagEdgeId, u64)>,
    /// Executions of labels in all copies together.
    labels: u64,
    sequential: u64,
}

impl Known<'_> {
    fn of(procedure: &Procedure, measure: Measure) -> Known<'_> {
        let ends = Ends::of(&procedure.dag);
        let counts = ends.edges().iter().map(|e| (*e, procedure.frequencies[e.index()])).collect();
        let told_apart = least_labels(&procedure.dag, &ends, &procedure.frequencies, ends.edges());
        let whole = Part::whole(&procedure.dag, &procedure.frequencies, measure);
        let sequential = whole.map_or(0, |part| of_part(procedure, &part).of(measure));
        Known { procedure, counts, labels: told_apart.max(not_most_frequent(procedure)), sequential, ends }
    }

    /// The least that the dearest copy executes for an end, where all copies together execute `sum` if each end is counted once.
    fn of_end(&self, end: DagEdgeId, count: u64, copies: u64, sum: u64) -> u64 {
        let (dag, frequencies) = (&self.procedure.dag, &self.procedure.frequencies);
        let labels = least_labels(dag, &self.ends, frequencies, &[end]);
        let alone = least_labels_of_one(dag, &self.ends, frequencies, end);
        let among = |m: u64| {
            let own = count.saturating_add(labels.div_ceil(m).max(alone));
            own.max(count.saturating_mul(m - 1).saturating_add(sum).div_ceil(copies))
        };
        (1..=copies).map(among).min().unwrap_or(0)
    }
}

/// Labels that all copies have to execute together: at each end all its paths' executions but the most frequent one's. Paths
/// in passing execute those of other paths.
fn not_most_frequent(procedure: &Procedure) -> u64 {
    let mut of_end = BTreeMap::<_, (u64, u64)>::new();
    for path in procedure.paths.iter().filter(|p| !p.in_passing) {
        let (sum, most) = of_end.entry(path.end).or_default();
        *sum += path.count;
        *most = (*most).max(path.count);
    }
    of_end.values().map(|(sum, most)| sum - most).sum()
}

/// Of `k m + 1` ends some copy counts `m + 1`; `counts` falls.
fn together(counts: &[u64], copies: usize) -> u64 {
    let of = |m: usize| counts.get((copies - 1) * m..=copies * m).map_or(0, |least| least.iter().sum());
    (0..=counts.len() / copies).map(of).max().unwrap_or(0)
}

fn dearest_end(known: &[Known], copies: u64, sum: u64) -> u64 {
    let all = known.iter().flat_map(|k| k.counts.iter().map(move |(end, count)| (count.saturating_add(k.labels), k, *end, *count)));
    let mut order: Vec<_> = all.filter(|(most, ..)| *most > sum.div_ceil(copies)).collect();
    order.sort_by_key(|(most, ..)| Reverse(*most));
    let mut dearest = 0;
    for (most, known, end, count) in order {
        if most <= dearest {
            break;
        }
        dearest = dearest.max(known.of_end(end, count, copies, sum));
    }
    dearest
}
