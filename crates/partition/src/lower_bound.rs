//! Lower bounds on the cost of every plan, including plans that divide the paths of one [end](trodden_flow::part::PathEnds) among copies.
//!
//! - A path is counted at its end or later, in each execution of the end. So a copy that profiles any path of an end counts as often as
//!   the end is executed ([`LowerBound::path`]).
//! - The labels of all copies together distinguish all paths of each procedure. They execute at least what
//!   [`super::separation_bound::min_label_executions_for_ends`] computes, and at least all executions of each end except those of its most
//!   frequent path: only one path of an end can be without labels in a copy. One of `k` copies has at least a `k`-th of these labels and
//!   of one count of each end ([`LowerBound::average`]).
//! - If `m` copies profile paths of an end, one of them has at least an `m`-th of the labels that distinguish the end's paths, and at
//!   least those that distinguish the most expensive path ([`super::single_path_bound`]), in addition to the end's counts; together they
//!   count the end `m` times. [`LowerBound::end`] is the smallest number `h` of hits of the slowest copy for which each end fits into its
//!   copies and all `k` copies together have at most `k h` hits.
//! - A plan that keeps the paths of each end together, as all strategies but [`PartitionStrategy::P3`](super::PartitionStrategy::P3) do,
//!   has a copy with all labels and counts of the most expensive end ([`LowerBound::whole_end`]).
//! - One copy counts two of the `k + 1` most frequent ends, three of the first `2k + 1`, and so on ([`LowerBound::together`]).
//!
//! [`LowerBound::ideal`], a `k`-th of the sequential cost, is not a bound but is used for comparison. A plan may be below it, because a
//! copy that distinguishes fewer paths needs fewer labels.

use super::Procedure;
use super::hits::part_hits;
use super::separation_bound::min_label_executions_for_ends;
use super::single_path_bound::min_label_executions_for_one_path;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trodden_flow::dag::DagEdgeId;
use trodden_flow::part::{Measure, Part, PathEnds};

/// Bounds on the hits of the slowest copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowerBound {
    /// Hits (executions of probes) of sequential Ball-Larus, where one copy counts all paths.
    pub sequential: u64,
    /// `sequential` divided by the number of copies, rounded up. Not a bound.
    pub ideal: u64,
    /// Number of executions of the most frequent path.
    pub path: u64,
    /// Bound from the most expensive ends: their counts and labels, in as many copies as are needed.
    pub end: u64,
    /// Bound for plans in which all paths of an end are in one copy.
    pub whole_end: u64,
    /// Number of executions of ends that some copy must count, however the ends are distributed.
    pub together: u64,
    /// Minimum number of executions of labels and counters in all copies together, divided by the number of copies.
    pub average: u64,
}

impl LowerBound {
    /// Replaces the sequential cost with the measured hits of a program that counts all paths. That program's labels were placed by other
    /// frequencies.
    pub fn with_sequential(self, sequential: u64, copies: usize) -> LowerBound {
        LowerBound { sequential, ideal: sequential.div_ceil(copies.max(1) as u64), ..self }
    }

    /// Returns the greatest lower bound on the hits of the slowest copy of any plan.
    pub fn proven(&self) -> u64 {
        self.end.max(self.together).max(self.average)
    }

    /// Returns the greatest lower bound for plans that keep the paths of each end together.
    pub fn proven_for_whole_ends(&self) -> u64 {
        self.proven().max(self.whole_end)
    }
}

/// Computes the bounds for `copies` copies. With [`Measure::Labels`], a copy that profiles a single path needs only the labels that
/// distinguish it from others, so only the average is bounded.
pub fn bound(procedures: &[Procedure], copies: usize, measure: Measure) -> LowerBound {
    let copies = copies.max(1) as u64;
    let known: Vec<KnownProcedureCosts> = procedures.iter().map(|p| KnownProcedureCosts::new(p, measure)).collect();
    let mut bound = LowerBound { sequential: known.iter().map(|k| k.sequential).sum(), ..LowerBound::default() };
    bound.ideal = bound.sequential.div_ceil(copies);
    let mut sum: u64 = known.iter().map(|k| k.labels).sum();
    if measure == Measure::All {
        let mut counts: Vec<u64> = known.iter().flat_map(|k| k.counts.iter().map(|c| c.1)).collect();
        counts.sort_unstable_by_key(|c| Reverse(*c));
        sum += counts.iter().sum::<u64>();
        bound.path = procedures.iter().flat_map(|p| &p.paths).map(|p| p.count).max().unwrap_or(0);
        bound.together = executions_counted_together(&counts, copies as usize);
        bound.whole_end = most_expensive_end(&known, sum.div_ceil(copies));
        bound.end = smallest_sufficient_hits(&expensive_ends(&known, sum.div_ceil(copies)), copies, sum);
    }
    bound.average = sum.div_ceil(copies);
    bound
}

struct KnownProcedureCosts<'a> {
    procedure: &'a Procedure,
    ends: PathEnds,
    /// Edges that end a path, and how often each is executed.
    counts: Vec<(DagEdgeId, u64)>,
    labels: u64,
    sequential: u64,
}

impl KnownProcedureCosts<'_> {
    fn new(procedure: &Procedure, measure: Measure) -> KnownProcedureCosts<'_> {
        let ends = PathEnds::from_dag(&procedure.dag);
        let counts = ends.edges().iter().map(|e| (*e, procedure.frequencies[e.index()])).collect();
        let separated = min_label_executions_for_ends(&procedure.dag, &ends, &procedure.frequencies, ends.edges());
        let whole = Part::whole(&procedure.dag, &procedure.frequencies, measure);
        let sequential = whole.map_or(0, |part| part_hits(procedure, &part).of(measure));
        KnownProcedureCosts { procedure, counts, labels: separated.max(executions_except_most_frequent(procedure)), sequential, ends }
    }

    /// Returns the minimum number of probe executions in a copy that profiles all paths with this end.
    fn whole_end_cost(&self, end: DagEdgeId, count: u64) -> u64 {
        count.saturating_add(min_label_executions_for_ends(&self.procedure.dag, &self.ends, &self.procedure.frequencies, &[end]))
    }
}

/// Returns the minimum number of label executions in all copies together: at each end, the number of executions of all paths except the
/// most frequent one. Paths that are counted where longer paths continue have the labels of other paths, so they are not included.
fn executions_except_most_frequent(procedure: &Procedure) -> u64 {
    let mut of_end = BTreeMap::<_, (u64, u64)>::new();
    for path in procedure.paths.iter().filter(|p| !p.in_passing) {
        let (sum, most) = of_end.entry(path.end).or_default();
        *sum += path.count;
        *most = (*most).max(path.count);
    }
    of_end.values().map(|(sum, most)| sum - most).sum()
}

/// Returns the greatest number of executions that some copy must count: of `k m + 1` ends, one of `k` copies counts at least `m + 1`.
/// `counts` is in descending order.
fn executions_counted_together(counts: &[u64], copies: usize) -> u64 {
    let of = |m: usize| counts.get((copies - 1) * m..=copies * m).map_or(0, |least| least.iter().sum());
    (0..=counts.len() / copies).map(of).max().unwrap_or(0)
}

/// Returns the cost of the most expensive end, if one copy counts all its paths. Ends whose cost cannot exceed `uninteresting` are ignored.
fn most_expensive_end(known: &[KnownProcedureCosts], uninteresting: u64) -> u64 {
    let all = known.iter().flat_map(|k| k.counts.iter().map(move |(end, count)| (count.saturating_add(k.labels), k, *end, *count)));
    let mut order: Vec<_> = all.filter(|(most, ..)| *most > uninteresting).collect();
    order.sort_by_key(|(most, ..)| Reverse(*most));
    let mut most_expensive = 0;
    for (most, known, end, count) in order {
        if most <= most_expensive {
            break;
        }
        most_expensive = most_expensive.max(known.whole_end_cost(end, count));
    }
    most_expensive
}

const MAX_EXPENSIVE_ENDS: usize = 64;

/// An end that may be too expensive for a single copy.
struct ExpensiveEnd {
    count: u64,
    /// Lower bound on the executions of labels that distinguish all paths with this end.
    labels: u64,
    /// Lower bound on the executions of labels that distinguish one path from all others.
    single: u64,
}

fn expensive_ends(known: &[KnownProcedureCosts], share: u64) -> Vec<ExpensiveEnd> {
    let all = known.iter().flat_map(|k| k.counts.iter().map(move |(end, count)| (*count, k, *end)));
    let mut expensive: Vec<_> = all.filter(|(count, k, _)| *count > 0 && count.saturating_add(k.labels) > share).collect();
    expensive.sort_by_key(|(count, ..)| Reverse(*count));
    let found = expensive.into_iter().take(MAX_EXPENSIVE_ENDS).map(|(count, k, end)| {
        let (dag, frequencies) = (&k.procedure.dag, &k.procedure.frequencies);
        let labels = min_label_executions_for_ends(dag, &k.ends, frequencies, &[end]);
        ExpensiveEnd { count, labels, single: min_label_executions_for_one_path(dag, &k.ends, frequencies, end).min(labels) }
    });
    found.collect()
}

/// Returns the smallest number of hits per copy that suffices: no end needs more than `copies` copies, and all copies together have room
/// for all hits.
fn smallest_sufficient_hits(expensive: &[ExpensiveEnd], copies: u64, sum: u64) -> u64 {
    let suffices = |hits: u64| {
        let mut all = u128::from(sum);
        for end in expensive {
            let room = hits.saturating_sub(end.count);
            let needed = if end.labels <= room { 1 } else { end.labels.div_ceil(room.max(1)) };
            if hits < end.count || end.single > room || needed > copies {
                return false;
            }
            all += u128::from(needed - 1) * u128::from(end.count);
        }
        all <= u128::from(hits) * u128::from(copies)
    };
    let (mut least, mut most) = (0, expensive.iter().map(|e| e.count.saturating_add(e.labels)).fold(sum, u64::max));
    while least < most {
        let middle = least + (most - least) / 2;
        if suffices(middle) { most = middle } else { least = middle + 1 }
    }
    least
}
