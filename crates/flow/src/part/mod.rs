//! What one copy does in one procedure: increments of the path register, and where it counts.
//!
//! Three constructions, of which the callers take the cheapest that fits:
//!
//! - [`Part::whole`]: all paths, Ball-Larus, increments where the values are or on chords;
//! - [`Part::selective`]: the paths of a set of edges, by precise selective labels, likewise; every path is counted,
//!   and sums of uninteresting paths are those of no interesting one;
//! - [`Part::by_ends`]: the paths of some [ends](Ends). Only nodes from which such an end is reached need
//!   labels, and nothing is counted at other ends; so uninteresting paths, which all leave by other ends, need no sums
//!   of their own.

mod ends;
mod hits;
mod labels;

pub use ends::Ends;
pub use hits::Hits;
pub use labels::{LabelSums, pspp};

use crate::dag::{Dag, DagEdgeId};
use crate::numbering::{Numbering, number_within};
use crate::placement::on_chords;
use serde::{Deserialize, Serialize};

/// What counts as a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// An execution of an edge with an increment other than zero, as the paper counts.
    Labels,
    /// The same, and each count of a path. An increment on the edge where the path is counted is part of the counter's
    /// address, and costs nothing.
    All,
}

/// A copy's part of a procedure. All tables are by edge of the DAG.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Whether an edge lies on an interesting path; all such paths are profiled.
    pub interesting: Vec<bool>,
    /// What the edge's label is before it is moved to chords: a path's number is their sum.
    pub values: Vec<i64>,
    /// What the path register is increased by.
    pub increments: Vec<i64>,
    /// What the sum of a path's increments lacks to its number: a constant, which is part of the address of the first counter.
    pub offset: i64,
    /// Whether paths are counted here: on ends only.
    pub counted: Vec<bool>,
    /// Which edges are ends.
    pub ends: Vec<bool>,
}

/// Where chords may be, and whether sums may all be off by a constant: then the edge from exit to entry need not be in
/// the tree, and one more edge is.
struct Chords<'a> {
    live: &'a [bool],
    free_exit: bool,
}

impl Part {
    /// All paths, or `None` if there are 2^63 or more. Sums of increments are the paths' numbers, as published.
    pub fn whole(dag: &Dag, frequencies: &[u64], measure: Measure) -> Option<Part> {
        let numbering = Numbering::ball_larus(dag).ok()?;
        let all = vec![true; dag.edges().len()];
        Some(Part::counting_all(dag, all, numbering.values().to_vec(), frequencies, measure))
    }

    /// The paths all of whose edges are in `interesting_ends`; counts are made at every end. The DAG has less than 2^63 paths.
    pub fn selective(dag: &Dag, interesting_ends: &[bool], frequencies: &[u64], measure: Measure) -> Part {
        let interesting = dag.on_whole_paths(|e| interesting_ends[e.index()]);
        let values = pspp(dag, &interesting);
        Part::counting_all(dag, interesting, values, frequencies, measure)
    }

    /// The paths with one of the `interesting_ends` ends. The DAG has less than 2^63 paths.
    pub fn by_ends(dag: &Dag, interesting_ends: &[DagEdgeId], frequencies: &[u64], measure: Measure) -> Part {
        let interesting = leading_to(dag, interesting_ends);
        let (values, _) = number_within(dag, &interesting);
        let mut part =
            Part::placed(dag, &Chords { live: &interesting, free_exit: true }, interesting.clone(), values, frequencies, measure);
        interesting_ends.iter().for_each(|e| part.counted[e.index()] = true);
        part
    }

    /// Number of increments other than zero.
    pub fn labels(&self) -> usize {
        self.increments.iter().filter(|i| **i != 0).count()
    }

    /// Number of probes: increments that are not part of a count, and counts.
    pub fn probes(&self) -> usize {
        let probe = |at: &usize| self.counted[*at] || self.increments[*at] != 0 && !self.ends[*at];
        (0..self.increments.len()).filter(probe).count()
    }

    /// Whether there is an entry for each of so many edges: what was stored may be damaged.
    pub fn fits(&self, edges: usize) -> bool {
        let tables = [self.interesting.len(), self.values.len(), self.increments.len(), self.counted.len(), self.ends.len()];
        tables == [edges; 5]
    }

    /// The nodes from which a place is reached where this part counts.
    pub fn leads(&self, dag: &Dag) -> Vec<bool> {
        let mut leads = vec![false; dag.node_count()];
        for &node in dag.order().iter().rev() {
            leads[node.index()] = dag.out(node).iter().any(|e| self.counted[e.index()] || leads[dag.edge(*e).to.index()]);
        }
        leads
    }

    /// Least and greatest number that is counted, those of uninteresting paths too; `None` if nothing is.
    pub fn counted_numbers(&self, dag: &Dag) -> Option<(i64, i64)> {
        let mut sums: Vec<Option<(i64, i64)>> = vec![None; dag.node_count()];
        for &node in dag.order().iter().rev() {
            let by = |edge: DagEdgeId| {
                let behind = if self.counted[edge.index()] { Some((self.offset, self.offset)) } else { sums[dag.edge(edge).to.index()] };
                let increment = self.increments[edge.index()];
                behind.map(|(least, most)| (least.wrapping_add(increment), most.wrapping_add(increment)))
            };
            sums[node.index()] = dag.out(node).iter().filter_map(|e| by(*e)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        sums[dag.entry().index()]
    }

    /// A path's number in this part.
    pub fn id(&self, path: &[DagEdgeId]) -> i64 {
        path.iter().map(|e| self.values[e.index()]).sum()
    }

    /// Whether a path is profiled here.
    pub fn profiles(&self, path: &[DagEdgeId]) -> bool {
        path.iter().all(|e| self.interesting[e.index()])
    }

    /// The interesting path with a number, if there is one.
    pub fn path(&self, dag: &Dag, id: i64) -> Option<Vec<DagEdgeId>> {
        LabelSums::new(dag, &self.values, &self.interesting).path(id)
    }

    fn counting_all(dag: &Dag, interesting: Vec<bool>, values: Vec<i64>, frequencies: &[u64], measure: Measure) -> Part {
        let live = vec![true; dag.edges().len()];
        let mut part = Part::placed(dag, &Chords { live: &live, free_exit: false }, interesting, values, frequencies, measure);
        part.counted.clone_from(&part.ends);
        part
    }

    /// Increments where the values are, or on chords among the `live` edges: whichever is hit less.
    fn placed(dag: &Dag, chords: &Chords, interesting: Vec<bool>, values: Vec<i64>, frequencies: &[u64], measure: Measure) -> Part {
        let found = Ends::from_dag(dag);
        let mut ends = vec![false; dag.edges().len()];
        found.edges().iter().for_each(|e| ends[e.index()] = true);
        let direct = resolved(dag, &found, &values);
        let weight = |at: usize| if ends[at] && measure == Measure::All { 0 } else { frequencies[at] };
        let inner = |e: &DagEdgeId| chords.live[e.index()] && !found.is_decided(dag.edge(*e).from);
        let mut inner: Vec<DagEdgeId> = dag.edge_ids().filter(inner).collect();
        inner.sort_by_key(|e| (std::cmp::Reverse(weight(e.index())), *e));
        // Edges that end paths lead to the exit at once.
        let head = |e: DagEdgeId| if found.is_decided(dag.edge(e).to) { dag.exit() } else { dag.edge(e).to };
        let (chords, offset) = on_chords(dag, &inner, &direct, head, !chords.free_exit);
        let cost = |increments: &[i64]| {
            let labelled = || (0..increments.len()).filter(|at| increments[*at] != 0);
            (labelled().map(weight).sum::<u64>(), labelled().count())
        };
        let (increments, offset) = if cost(&chords) < cost(&direct) { (chords, offset) } else { (direct, 0) };
        Part { interesting, values, increments, offset, counted: vec![false; dag.edges().len()], ends }
    }
}

/// The same sums with nothing behind the ends: what is there belongs to the one path that leads on.
fn resolved(dag: &Dag, ends: &Ends, values: &[i64]) -> Vec<i64> {
    let mut behind = vec![0; dag.node_count()];
    let mut resolved = values.to_vec();
    for &node in dag.order().iter().rev().filter(|n| ends.is_decided(**n) && **n != dag.exit()) {
        let only = dag.out(node)[0];
        behind[node.index()] = values[only.index()] + behind[dag.edge(only).to.index()];
        resolved[only.index()] = 0;
    }
    ends.edges().iter().for_each(|e| resolved[e.index()] += behind[dag.edge(*e).to.index()]);
    resolved
}

/// The edges on paths with one of the interesting ends.
fn leading_to(dag: &Dag, interesting_ends: &[DagEdgeId]) -> Vec<bool> {
    let mut marked = vec![true; dag.edges().len()];
    Ends::from_dag(dag).edges().iter().for_each(|e| marked[e.index()] = false);
    interesting_ends.iter().for_each(|e| marked[e.index()] = true);
    dag.on_whole_paths(|e| marked[e.index()])
}
