//! Tasks: sets of paths that a copy profiles together.
//!
//! Source: Afraz, Saha and Kanade (2015), algorithm 2 (`find_partition`). Prefixes of paths grow from the entry of the reduced graph,
//! node by node in topological order, until their number reaches the [threshold](super::ProfitableProcedures::threshold). Each prefix
//! is then completed by all edges that are reachable from its last node. O(threshold x edges).

use super::reduce::{ReducedDag, ReducedEdge, ReducedEdgeSet, fold_conditionals, original_edges};
use trodden_flow::dag::{Dag, DagEdgeSet};
use trodden_flow::graph::Node;

/// Maximum total number of edges in the edge sets of all tasks of a procedure.
const MAX_EDGES_OF_ALL_TASKS: usize = 1 << 24;

/// Returns true if `threshold` tasks would take too much memory and time. Each task is a set of edges, and the entry of a long graph with
/// many cuts has thousands of outgoing edges.
pub fn are_too_many_tasks(dag: &Dag, threshold: usize) -> bool {
    threshold.saturating_mul(dag.edges().len()) > MAX_EDGES_OF_ALL_TASKS
}

/// Returns the tasks of a procedure as sets of edges of its DAG. Each path lies entirely within at least one of them. If there are no paths
/// to divide, a single task contains all edges.
pub fn tasks(dag: &Dag, threshold: usize, fold_again: bool) -> Vec<DagEdgeSet> {
    let reduced = fold_conditionals(dag, fold_again);
    if reduced.edges.is_empty() {
        return vec![DagEdgeSet::full(dag.edges().len())];
    }
    let grown = PrefixGrowth::grow_until_threshold(&reduced, dag, threshold);
    let mut sets: Vec<DagEdgeSet> = grown.complete_prefixes().iter().map(|s| original_edges(&reduced, s, dag.edges().len())).collect();
    sets.sort();
    sets.dedup();
    sets
}

struct PrefixGrowth<'a> {
    reduced: &'a ReducedDag,
    /// For each node, the edge sets of the prefixes that end there.
    sets: Vec<Vec<ReducedEdgeSet>>,
    covered: ReducedEdgeSet,
}

impl PrefixGrowth<'_> {
    fn grow_until_threshold<'a>(reduced: &'a ReducedDag, dag: &Dag, threshold: usize) -> PrefixGrowth<'a> {
        let none = ReducedEdgeSet::empty(reduced.edges.len());
        let mut growth = PrefixGrowth { reduced, sets: vec![Vec::new(); dag.node_count()], covered: none.clone() };
        growth.sets[dag.entry().index()].push(none);
        let mut total = 1;
        for &node in reduced.order.iter().filter(|n| **n != reduced.exit) {
            total -= growth.sets[node.index()].len();
            let edges = &reduced.out[node.index()];
            for (at, &edge) in edges.iter().enumerate() {
                total += growth.extend(node, edge, at + 1 == edges.len());
                if total >= threshold {
                    return growth;
                }
            }
        }
        growth
    }

    /// Extends all prefixes at a node by one of its edges, and returns how many there are. For the last edge, the sets are moved, because
    /// copying them at each node of a long chain would take quadratic time.
    fn extend(&mut self, node: Node, edge: ReducedEdge, last: bool) -> usize {
        self.covered.insert(edge);
        let mut longer = match last {
            true => std::mem::take(&mut self.sets[node.index()]),
            false => self.sets[node.index()].clone(),
        };
        for set in &mut longer {
            set.insert(edge);
        }
        let to = self.reduced.edges[edge.index()].2;
        let count = longer.len();
        self.sets[to.index()].append(&mut longer);
        count
    }

    /// Completes each prefix with all edges that are reachable from its last node, beginning with edges that no prefix contains. Complete
    /// paths are not changed.
    fn complete_prefixes(self) -> Vec<ReducedEdgeSet> {
        let mut out = Vec::new();
        for &node in &self.reduced.order {
            let open: Vec<ReducedEdge> = self.reduced.out[node.index()].iter().copied().filter(|e| !self.covered.contains(*e)).collect();
            if self.sets[node.index()].is_empty() || open.is_empty() && node != self.reduced.exit {
                continue;
            }
            let rest = self.reachable(&open);
            for set in &self.sets[node.index()] {
                let mut whole = set.clone();
                whole.union_with(&rest);
                out.push(whole);
            }
        }
        out
    }

    fn reachable(&self, from: &[ReducedEdge]) -> ReducedEdgeSet {
        let mut seen = ReducedEdgeSet::empty(self.reduced.edges.len());
        let mut stack = from.to_vec();
        while let Some(edge) = stack.pop() {
            if seen.insert(edge) {
                stack.extend(&self.reduced.out[self.reduced.edges[edge.index()].2.index()]);
            }
        }
        seen
    }
}
