//! What every plan costs at least.
//!
//! Proven for all plans that this module's [`Part`](trodden_flow::part::Part)s can express, those too that divide the paths of one
//! [end](trodden_flow::part::Ends) among copies:
//!
//! - A path is counted where its identity is decided or later, whenever control comes there. So a copy that profiles
//!   any path of an end counts as often as the end is taken; the path alone is a part of that ([`LowerBound::path`]).
//! - In a copy that profiles a path there are labels wherever another path of its end differs, so the labels of all
//!   copies together distinguish all paths of each procedure. They execute at least what [`separation_bound::least_labels`] says,
//!   and also as often as each end is taken, less its most frequent path: at most one path of an end is without labels,
//!   or, if several are, each is in a copy where all others have some. One copy of `k` has a `k`-th of these labels and
//!   of one count of each end ([`LowerBound::average`]).
//! - If `m` copies profile paths of an end, one of them has an `m`-th of the labels that distinguish the end's paths,
//!   and no less than distinguish the most expensive path from the others ([`single_path_bound`]), besides the end's
//!   counts; and all together count the end `m` times. So a plan whose slowest copy is hit `h` times has each end in so
//!   many copies that `h` suffices for one of them, and all copies together are hit `k h` times at most: the least `h`
//!   for which that fits together is [`LowerBound::end`].
//! - A plan that leaves the paths of each end together, as all strategies but [`PartitionStrategy::P3`](super::PartitionStrategy::P3) do,
//!   has a copy with all labels and counts of the most expensive end ([`LowerBound::whole_end`]).
//! - Two of the `k + 1` ends taken most often are counted in one copy, three of the first `2k + 1`, and so on ([`LowerBound::together`]).
//!
//! [`LowerBound::ideal`], a `k`-th of the sequential cost, is no bound, but what plans are measured by: a plan
//! may fall below it, where a copy saves labels because it need not distinguish as many paths.

use super::Procedure;
use super::hits::of_part;
use super::separation_bound::least_labels;
use super::single_path_bound::least_labels_of_one;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trodden_flow::dag::DagEdgeId;
use trodden_flow::part::{Ends, Measure, Part};

/// Bounds on the hits of the slowest copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowerBound {
    /// Hits of sequential Ball-Larus.
    pub sequential: u64,
    /// That divided by the number of copies, rounded up. Not a bound, but the ideal.
    pub ideal: u64,
    /// Executions of the most frequent path.
    pub path: u64,
    /// What suffices for the most expensive ends: executions, and labels that distinguish their paths, in as many copies as that takes.
    pub end: u64,
    /// The same where all paths of an end are in one copy.
    pub whole_end: u64,
    /// Executions of ends that some copy has to count together.
    pub together: u64,
    /// The average, over copies, of what all copies have to execute together.
    pub average: u64,
}

impl LowerBound {
    /// The same beside a program that counts all with so many hits, where its labels were not placed by these frequencies.
    pub fn beside(self, sequential: u64, copies: usize) -> LowerBound {
        LowerBound { sequential, ideal: sequential.div_ceil(copies.max(1) as u64), ..self }
    }

    /// No plan's slowest copy is hit less often than this.
    pub fn proven(&self) -> u64 {
        self.end.max(self.together).max(self.average)
    }

    /// No plan's slowest copy is hit less often than this that leaves the paths of each end together.
    pub fn proven_for_whole_ends(&self) -> u64 {
        self.proven().max(self.whole_end)
    }
}

/// The bounds for `copies` copies. Under [`Measure::Labels`] a copy that profiles a single path needs no label but
/// those that distinguish it from others, so only the share is bounded.
pub fn bound(procedures: &[Procedure], copies: usize, measure: Measure) -> LowerBound {
    let copies = copies.max(1) as u64;
    let known: Vec<Known> = procedures.iter().map(|p| Known::new(p, measure)).collect();
    let mut bound = LowerBound { sequential: known.iter().map(|k| k.sequential).sum(), ..LowerBound::default() };
    bound.ideal = bound.sequential.div_ceil(copies);
    let mut sum: u64 = known.iter().map(|k| k.labels).sum();
    if measure == Measure::All {
        let mut counts: Vec<u64> = known.iter().flat_map(|k| k.counts.iter().map(|c| c.1)).collect();
        counts.sort_unstable_by_key(|c| Reverse(*c));
        sum += counts.iter().sum::<u64>();
        bound.path = procedures.iter().flat_map(|p| &p.paths).map(|p| p.count).max().unwrap_or(0);
        bound.together = together(&counts, copies as usize);
        bound.whole_end = most_expensive_end(&known, sum.div_ceil(copies));
        bound.end = sufficient(&expensive_ends(&known, sum.div_ceil(copies)), copies, sum);
    }
    bound.average = sum.div_ceil(copies);
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
    fn new(procedure: &Procedure, measure: Measure) -> Known<'_> {
        let ends = Ends::from_dag(&procedure.dag);
        let counts = ends.edges().iter().map(|e| (*e, procedure.frequencies[e.index()])).collect();
        let separated = least_labels(&procedure.dag, &ends, &procedure.frequencies, ends.edges());
        let whole = Part::whole(&procedure.dag, &procedure.frequencies, measure);
        let sequential = whole.map_or(0, |part| of_part(procedure, &part).of(measure));
        Known { procedure, counts, labels: separated.max(not_most_frequent(procedure)), sequential, ends }
    }

    /// What a copy executes for all paths of an end.
    fn of_whole_end(&self, end: DagEdgeId, count: u64) -> u64 {
        count.saturating_add(least_labels(&self.procedure.dag, &self.ends, &self.procedure.frequencies, &[end]))
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

/// The most that a whole end costs, or less than `uninteresting`.
fn most_expensive_end(known: &[Known], uninteresting: u64) -> u64 {
    let all = known.iter().flat_map(|k| k.counts.iter().map(move |(end, count)| (count.saturating_add(k.labels), k, *end, *count)));
    let mut order: Vec<_> = all.filter(|(most, ..)| *most > uninteresting).collect();
    order.sort_by_key(|(most, ..)| Reverse(*most));
    let mut most_expensive = 0;
    for (most, known, end, count) in order {
        if most <= most_expensive {
            break;
        }
        most_expensive = most_expensive.max(known.of_whole_end(end, count));
    }
    most_expensive
}

/// Ends examined that may be too expensive for one copy.
const MOST_EXPENSIVE: usize = 64;

/// An end that may be too expensive for one copy.
struct ExpensiveEnd {
    count: u64,
    /// Executions of labels that distinguish all its paths, and one path from all others.
    labels: u64,
    single: u64,
}

fn expensive_ends(known: &[Known], share: u64) -> Vec<ExpensiveEnd> {
    let all = known.iter().flat_map(|k| k.counts.iter().map(move |(end, count)| (*count, k, *end)));
    let mut expensive: Vec<_> = all.filter(|(count, k, _)| *count > 0 && count.saturating_add(k.labels) > share).collect();
    expensive.sort_by_key(|(count, ..)| Reverse(*count));
    let found = expensive.into_iter().take(MOST_EXPENSIVE).map(|(count, k, end)| {
        let (dag, frequencies) = (&k.procedure.dag, &k.procedure.frequencies);
        let labels = least_labels(dag, &k.ends, frequencies, &[end]);
        ExpensiveEnd { count, labels, single: least_labels_of_one(dag, &k.ends, frequencies, end).min(labels) }
    });
    found.collect()
}

/// The least number of hits with which every end is in enough copies, and all copies together have hits enough.
fn sufficient(expensive: &[ExpensiveEnd], copies: u64, sum: u64) -> u64 {
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
