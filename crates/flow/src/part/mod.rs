//! What one of several copies of a program does in one function: increments of the path register, and counts. Callers take the cheapest
//! of three constructions that fits:
//!
//! - [`Part::whole`]: all paths, by Ball-Larus.
//! - [`Part::selective`]: the paths of a set of edges, by precise selective labels. Every path is counted; interesting paths have sums that
//!   no other path has.
//! - [`Part::by_ends`]: the paths of some [ends](Ends). Other ends have no counts, so the paths that take them need no sums of their own.

mod ends;
mod hits;
mod labels;

pub use ends::Ends;
pub use hits::Hits;
pub use labels::{LabelSums, pspp};

use crate::dag::{Dag, DagEdgeId};
use crate::numbering::{Numbering, number_marked};
use crate::placement::on_chords;
use serde::{Deserialize, Serialize};

/// What counts as a hit of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// An execution of an edge with an increment other than zero, as the paper counts.
    Labels,
    /// Such an execution, or a count of a path. An increment on the edge where the path is counted is folded into the counter's address
    /// and costs nothing.
    All,
}

/// A copy's part of a function. All tables are by edge of the DAG.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Whether an edge lies on an interesting path. All interesting paths are profiled.
    pub interesting: Vec<bool>,
    /// The edge's label before labels are moved to chords. A path's number is the sum of its labels.
    pub values: Vec<i64>,
    /// What is added to the path register on the edge.
    pub increments: Vec<i64>,
    /// The constant by which the sum of a path's increments falls short of its number. It is folded into the base address of the counters.
    pub offset: i64,
    /// Whether paths are counted on the edge, which is then an end.
    pub counted: Vec<bool>,
    /// Whether the edge is an end.
    pub ends: Vec<bool>,
}

/// The edges that may be chords, and whether all sums may be off by one constant. If so, the edge from exit to entry need not be in the
/// spanning tree, which then has room for one more edge.
struct Chords<'a> {
    live: &'a [bool],
    free_exit: bool,
}

impl Part {
    /// All paths; `None` if there are 2^63 or more. The sums of increments are the paths' numbers, as published.
    pub fn whole(dag: &Dag, frequencies: &[u64], measure: Measure) -> Option<Part> {
        let numbering = Numbering::ball_larus(dag).ok()?;
        let all = vec![true; dag.edges().len()];
        Some(Part::counting_all(dag, all, numbering.values().to_vec(), frequencies, measure))
    }

    /// The paths that consist of `interesting_edges`. Counts are made at every end. The DAG must have less than 2^63 paths.
    pub fn selective(dag: &Dag, interesting_edges: &[bool], frequencies: &[u64], measure: Measure) -> Part {
        let interesting = dag.on_whole_paths(|e| interesting_edges[e.index()]);
        let values = pspp(dag, &interesting);
        Part::counting_all(dag, interesting, values, frequencies, measure)
    }

    /// The paths with one of the interesting ends. The DAG must have less than 2^63 paths.
    pub fn by_ends(dag: &Dag, interesting_ends: &[DagEdgeId], frequencies: &[u64], measure: Measure) -> Part {
        let interesting = leading_to(dag, interesting_ends);
        let (values, _) = number_marked(dag, &interesting);
        let mut part =
            Part::placed(dag, &Chords { live: &interesting, free_exit: true }, interesting.clone(), values, frequencies, measure);
        interesting_ends.iter().for_each(|e| part.counted[e.index()] = true);
        part
    }

    /// Number of increments that are not zero.
    pub fn labels(&self) -> usize {
        self.increments.iter().filter(|i| **i != 0).count()
    }

    /// Number of probes: increments that are not folded into a count, and counts.
    pub fn probes(&self) -> usize {
        let probe = |at: &usize| self.counted[*at] || self.increments[*at] != 0 && !self.ends[*at];
        (0..self.increments.len()).filter(probe).count()
    }

    /// Whether all tables have `edges` entries. Stored parts may be damaged.
    pub fn has_edges(&self, edges: usize) -> bool {
        let tables = [self.interesting.len(), self.values.len(), self.increments.len(), self.counted.len(), self.ends.len()];
        tables == [edges; 5]
    }

    /// The nodes from which an edge is reachable where this part counts.
    pub fn leads(&self, dag: &Dag) -> Vec<bool> {
        let mut leads = vec![false; dag.node_count()];
        for &node in dag.order().iter().rev() {
            leads[node.index()] = dag.out(node).iter().any(|e| self.counted[e.index()] || leads[dag.edge(*e).to.index()]);
        }
        leads
    }

    /// The least and the greatest number that is counted, including those of uninteresting paths; `None` if nothing is counted.
    pub fn counted_numbers(&self, dag: &Dag) -> Option<(i64, i64)> {
        let mut sums: Vec<Option<(i64, i64)>> = vec![None; dag.node_count()];
        for &node in dag.order().iter().rev() {
            let by = |edge: DagEdgeId| {
                let rest = if self.counted[edge.index()] { Some((self.offset, self.offset)) } else { sums[dag.edge(edge).to.index()] };
                let increment = self.increments[edge.index()];
                rest.map(|(least, greatest)| (least.wrapping_add(increment), greatest.wrapping_add(increment)))
            };
            sums[node.index()] = dag.out(node).iter().filter_map(|e| by(*e)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        sums[dag.entry().index()]
    }

    /// The number of a path in this part.
    pub fn id(&self, path: &[DagEdgeId]) -> i64 {
        path.iter().map(|e| self.values[e.index()]).sum()
    }

    /// Whether a path is interesting, and so profiled, in this part.
    pub fn profiles(&self, path: &[DagEdgeId]) -> bool {
        path.iter().all(|e| self.interesting[e.index()])
    }

    /// The interesting path with this number, if there is one.
    pub fn path(&self, dag: &Dag, id: i64) -> Option<Vec<DagEdgeId>> {
        LabelSums::new(dag, &self.values, &self.interesting).path(id)
    }

    fn counting_all(dag: &Dag, interesting: Vec<bool>, values: Vec<i64>, frequencies: &[u64], measure: Measure) -> Part {
        let live = vec![true; dag.edges().len()];
        let mut part = Part::placed(dag, &Chords { live: &live, free_exit: false }, interesting, values, frequencies, measure);
        part.counted.clone_from(&part.ends);
        part
    }

    /// Puts increments where the values are, or on chords among the `live` edges, whichever costs fewer hits.
    fn placed(dag: &Dag, chords: &Chords, interesting: Vec<bool>, values: Vec<i64>, frequencies: &[u64], measure: Measure) -> Part {
        let found = Ends::from_dag(dag);
        let mut ends = vec![false; dag.edges().len()];
        found.edges().iter().for_each(|e| ends[e.index()] = true);
        let direct = resolved(dag, &found, &values);
        let weight = |at: usize| if ends[at] && measure == Measure::All { 0 } else { frequencies[at] };
        let inner = |e: &DagEdgeId| chords.live[e.index()] && !found.is_decided(dag.edge(*e).from);
        let mut inner: Vec<DagEdgeId> = dag.edge_ids().filter(inner).collect();
        inner.sort_by_key(|e| (std::cmp::Reverse(weight(e.index())), *e));
        // After an end the path is decided, so the tree treats ends as edges to the exit.
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

/// Moves the values after an end to the end itself, which does not change any sum, since one path leads on from there.
fn resolved(dag: &Dag, ends: &Ends, values: &[i64]) -> Vec<i64> {
    let mut rest = vec![0; dag.node_count()];
    let mut resolved = values.to_vec();
    for &node in dag.order().iter().rev().filter(|n| ends.is_decided(**n) && **n != dag.exit()) {
        let only = dag.out(node)[0];
        rest[node.index()] = values[only.index()] + rest[dag.edge(only).to.index()];
        resolved[only.index()] = 0;
    }
    ends.edges().iter().for_each(|e| resolved[e.index()] += rest[dag.edge(*e).to.index()]);
    resolved
}

/// The edges on paths that take one of the interesting ends.
fn leading_to(dag: &Dag, interesting_ends: &[DagEdgeId]) -> Vec<bool> {
    let mut marked = vec![true; dag.edges().len()];
    Ends::from_dag(dag).edges().iter().for_each(|e| marked[e.index()] = false);
    interesting_ends.iter().for_each(|e| marked[e.index()] = true);
    dag.on_whole_paths(|e| marked[e.index()])
}
