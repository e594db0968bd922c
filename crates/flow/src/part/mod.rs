//! The part of a function's paths that one of several copies of a program counts: increments of the path register, and counts. Callers
//! choose the cheapest suitable one of three constructions:
//!
//! - [`Part::whole`]: all paths, by Ball-Larus numbers.
//! - [`Part::selective`]: the paths over a set of edges, by precise selective labels. All paths are counted, but only interesting ones have
//!   unique sums.
//! - [`Part::counting_paths_with_ends`]: the paths with certain [ends](PathEnds). Paths with other ends are not counted and do not need
//!   unique sums.

mod ends;
mod hits;
mod labels;

pub use ends::PathEnds;
pub use hits::ProbeHits;
pub use labels::{LabelSumDecoder, precise_selective_labels};

use crate::dag::{Dag, DagEdgeId, DagEdgeSet};
use crate::graph::NodeSet;
use crate::numbering::{Numbering, number_marked_paths};
use crate::placement::move_to_chords;
use serde::{Deserialize, Serialize};

/// Which executions count as hits of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Executions of edges with a nonzero increment, as in the paper.
    Labels,
    /// Executions of edges with a nonzero increment or a count. An increment on the edge where the path is counted is folded into the
    /// counter's address, so it does not count as an additional hit.
    All,
}

/// The paths of a function that one of several copies of a program counts, and the copy's probes. The vectors have an element for each edge
/// of the DAG, and the sets are sets of its edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The edges on interesting paths.
    pub interesting: DagEdgeSet,
    /// For each edge, its label before labels are moved to chords. A path's number is the sum of its labels.
    pub values: Vec<i64>,
    /// For each edge, the increment of the path register.
    pub increments: Vec<i64>,
    /// A path's number minus the sum of its increments, which is the same for all paths. It is part of the counters' base address.
    pub offset: i64,
    /// The edges on which paths are counted, which are ends.
    pub counted: DagEdgeSet,
    /// The edges that are ends.
    pub ends: DagEdgeSet,
}

/// Constraints for placing increments on chords.
struct ChordConstraints<'a> {
    live: &'a DagEdgeSet,
    /// Whether all sums may be off by the same constant, so that the edge from exit to entry need not be in the spanning tree.
    free_exit: bool,
}

impl Part {
    /// Creates the part that counts all paths by their Ball-Larus numbers, or returns `None` if there are 2^63 or more.
    pub fn whole(dag: &Dag, frequencies: &[u64], measure: Measure) -> Option<Part> {
        let numbering = Numbering::ball_larus(dag).ok()?;
        let all = DagEdgeSet::full(dag.edges().len());
        Some(Part::with_counts_on_all_ends(dag, all, numbering.values().to_vec(), frequencies, measure))
    }

    /// Creates the part that counts the paths of `interesting_edges` with unique numbers. Other paths are also counted, since all ends have
    /// counts. The DAG must have fewer than 2^63 paths.
    pub fn selective(dag: &Dag, interesting_edges: &DagEdgeSet, frequencies: &[u64], measure: Measure) -> Part {
        let interesting = dag.edges_on_marked_paths(|e| interesting_edges.contains(e));
        let values = precise_selective_labels(dag, &interesting);
        Part::with_counts_on_all_ends(dag, interesting, values, frequencies, measure)
    }

    /// Creates the part that counts the paths with one of the interesting ends. The DAG must have fewer than 2^63 paths.
    pub fn counting_paths_with_ends(dag: &Dag, interesting_ends: &[DagEdgeId], frequencies: &[u64], measure: Measure) -> Part {
        let interesting = edges_on_paths_with_ends(dag, interesting_ends);
        let (values, _) = number_marked_paths(dag, &interesting);
        let mut part = Part::place_increments(
            dag,
            &ChordConstraints { live: &interesting, free_exit: true },
            interesting.clone(),
            values,
            frequencies,
            measure,
        );
        part.counted.extend(interesting_ends.iter().copied());
        part
    }

    /// Returns the number of nonzero increments.
    pub fn labels(&self) -> usize {
        self.increments.iter().filter(|i| **i != 0).count()
    }

    /// Returns the number of probes, which are counts and increments that are not folded into a count.
    pub fn probes(&self) -> usize {
        let is_probe = |e: &DagEdgeId| self.counted.contains(*e) || self.increments[e.index()] != 0 && !self.ends.contains(*e);
        (0..self.increments.len() as u32).map(DagEdgeId).filter(is_probe).count()
    }

    /// Returns whether the sizes of the vectors and sets are those of a graph with `edges` edges, which a corrupt file can violate.
    pub fn has_edges(&self, edges: usize) -> bool {
        let sets = [&self.interesting, &self.counted, &self.ends];
        sets.iter().all(|set| set.universe() == edges) && [&self.values, &self.increments].iter().all(|values| values.len() == edges)
    }

    /// Returns the nodes from which an edge on which this part counts is reachable.
    pub fn nodes_before_counts(&self, dag: &Dag) -> NodeSet {
        let mut leads = NodeSet::empty(dag.node_count());
        for &node in dag.order().iter().rev() {
            if dag.out(node).iter().any(|e| self.counted.contains(*e) || leads.contains(dag.edge(*e).to)) {
                leads.insert(node);
            }
        }
        leads
    }

    /// Returns the minimum and maximum number that is counted, including numbers of uninteresting paths, or `None` if no path is counted.
    pub fn counted_number_range(&self, dag: &Dag) -> Option<(i64, i64)> {
        let mut sums: Vec<Option<(i64, i64)>> = vec![None; dag.node_count()];
        for &node in dag.order().iter().rev() {
            let through = |edge: DagEdgeId| {
                let rest = if self.counted.contains(edge) { Some((self.offset, self.offset)) } else { sums[dag.edge(edge).to.index()] };
                let increment = self.increments[edge.index()];
                rest.map(|(least, greatest)| (least.wrapping_add(increment), greatest.wrapping_add(increment)))
            };
            sums[node.index()] = dag.out(node).iter().filter_map(|e| through(*e)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        sums[dag.entry().index()]
    }

    /// Returns the number of a path in this part.
    pub fn id(&self, path: &[DagEdgeId]) -> i64 {
        path.iter().map(|e| self.values[e.index()]).sum()
    }

    /// Returns whether a path consists of this part's interesting edges.
    pub fn is_interesting(&self, path: &[DagEdgeId]) -> bool {
        path.iter().all(|e| self.interesting.contains(*e))
    }

    /// Returns the interesting path with the given number, or `None` if there is no such path.
    pub fn path(&self, dag: &Dag, id: i64) -> Option<Vec<DagEdgeId>> {
        LabelSumDecoder::new(dag, &self.values, &self.interesting).path(id)
    }

    fn with_counts_on_all_ends(dag: &Dag, interesting: DagEdgeSet, values: Vec<i64>, frequencies: &[u64], measure: Measure) -> Part {
        let live = DagEdgeSet::full(dag.edges().len());
        let mut part =
            Part::place_increments(dag, &ChordConstraints { live: &live, free_exit: false }, interesting, values, frequencies, measure);
        part.counted.clone_from(&part.ends);
        part
    }

    /// Places increments on the edges with values or on chords, whichever costs fewer hits.
    fn place_increments(
        dag: &Dag,
        chords: &ChordConstraints,
        interesting: DagEdgeSet,
        values: Vec<i64>,
        frequencies: &[u64],
        measure: Measure,
    ) -> Part {
        let found = PathEnds::from_dag(dag);
        let ends = DagEdgeSet::from_members(dag.edges().len(), found.edges().iter().copied());
        let direct = move_values_to_ends(dag, &found, &values);
        let weight = |e: DagEdgeId| if measure == Measure::All && ends.contains(e) { 0 } else { frequencies[e.index()] };
        let inner = |e: &DagEdgeId| chords.live.contains(*e) && !found.is_after_path_end(dag.edge(*e).from);
        let mut inner: Vec<DagEdgeId> = dag.edge_ids().filter(inner).collect();
        inner.sort_by_key(|e| (std::cmp::Reverse(weight(*e)), *e));
        // Only one path continues after an end, so the spanning tree treats ends as edges to the exit.
        let head = |e: DagEdgeId| if found.is_after_path_end(dag.edge(e).to) { dag.exit() } else { dag.edge(e).to };
        let (chords, offset) = move_to_chords(dag, &inner, &direct, head, !chords.free_exit);
        let cost = |increments: &[i64]| {
            let labelled = || dag.edge_ids().filter(|e| increments[e.index()] != 0);
            (labelled().map(weight).sum::<u64>(), labelled().count())
        };
        let (increments, offset) = if cost(&chords) < cost(&direct) { (chords, offset) } else { (direct, 0) };
        Part { interesting, values, increments, offset, counted: DagEdgeSet::empty(dag.edges().len()), ends }
    }
}

/// Moves the values after an end to the end itself. This does not change sums, since only one path continues after an end.
fn move_values_to_ends(dag: &Dag, ends: &PathEnds, values: &[i64]) -> Vec<i64> {
    let mut rest = vec![0; dag.node_count()];
    let mut resolved = values.to_vec();
    for &node in dag.order().iter().rev().filter(|n| ends.is_after_path_end(**n) && **n != dag.exit()) {
        let only = dag.out(node)[0];
        rest[node.index()] = values[only.index()] + rest[dag.edge(only).to.index()];
        resolved[only.index()] = 0;
    }
    ends.edges().iter().for_each(|e| resolved[e.index()] += rest[dag.edge(*e).to.index()]);
    resolved
}

fn edges_on_paths_with_ends(dag: &Dag, interesting_ends: &[DagEdgeId]) -> DagEdgeSet {
    let mut marked = DagEdgeSet::full(dag.edges().len());
    for end in PathEnds::from_dag(dag).edges() {
        marked.remove(*end);
    }
    marked.extend(interesting_ends.iter().copied());
    dag.edges_on_marked_paths(|e| marked.contains(e))
}
