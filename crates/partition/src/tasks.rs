//! Tasks: sets of paths that a copy profiles together.
//!
//! Source: Afraz, Saha and Kanade (2015), algorithm 2 (`find_partition`). Paths of the reduced graph grow from the
//! entry, node by node in topological order, until there are as many as the
//! [threshold](super::ProfitableProcedures::threshold): as published, the out-degree of the entry or the number of copies,
//! whichever is more. What each has not come to yet is added to it whole. O(threshold x edges).

use super::reduce::{Reduced, original_edges, reduce};
use trodden_flow::dag::Dag;
use trodden_flow::graph::Node;

/// Edges of all sets together, up to which tasks are made.
const MOST_EDGES: usize = 1 << 24;

/// Whether the tasks of a procedure, as many as the threshold, would take too much memory and time: each is a set of edges, and a
/// long graph that is cut often has thousands of edges out of its entry.
pub fn are_too_many(dag: &Dag, threshold: usize) -> bool {
    threshold.saturating_mul(dag.edges().len()) > MOST_EDGES
}

/// The tasks of a procedure, as sets of edges of its DAG: each path lies wholly within one of them. A single task holds everything.
pub fn tasks(dag: &Dag, threshold: usize, fold_again: bool) -> Vec<Vec<bool>> {
    let reduced = reduce(dag, fold_again);
    if reduced.edges.is_empty() {
        return vec![vec![true; dag.edges().len()]];
    }
    let grown = Growth::until(&reduced, dag, threshold);
    let mut sets: Vec<Vec<bool>> = grown.complete().iter().map(|s| original_edges(&reduced, s, dag.edges().len())).collect();
    sets.sort();
    sets.dedup();
    sets
}

struct Growth<'a> {
    reduced: &'a Reduced,
    /// Edge sets of the beginnings of paths that stand at each node.
    sets: Vec<Vec<Vec<bool>>>,
    covered: Vec<bool>,
}

impl Growth<'_> {
    fn until<'a>(reduced: &'a Reduced, dag: &Dag, threshold: usize) -> Growth<'a> {
        let mut growth = Growth { reduced, sets: vec![Vec::new(); dag.node_count()], covered: vec![false; reduced.edges.len()] };
        growth.sets[dag.entry().index()].push(vec![false; reduced.edges.len()]);
        let mut total = 1;
        for &node in reduced.order.iter().filter(|n| **n != reduced.exit) {
            total -= growth.sets[node.index()].len();
            let edges = &reduced.out[node.index()];
            for (at, &edge) in edges.iter().enumerate() {
                total += growth.take(node, edge, at + 1 == edges.len());
                if total >= threshold {
                    return growth;
                }
            }
        }
        growth
    }

    /// All beginnings at a node go on over an edge; how many. Over the last edge the sets go on themselves: copies for each
    /// edge of a long chain would be as many as the square of its length.
    fn take(&mut self, node: Node, edge: usize, last: bool) -> usize {
        self.covered[edge] = true;
        let mut longer = match last {
            true => std::mem::take(&mut self.sets[node.index()]),
            false => self.sets[node.index()].clone(),
        };
        longer.iter_mut().for_each(|set| set[edge] = true);
        let to = self.reduced.edges[edge].2;
        let count = longer.len();
        self.sets[to.index()].append(&mut longer);
        count
    }

    /// Beginnings that have edges onwards, with everything behind those edges; and paths that are whole.
    fn complete(self) -> Vec<Vec<bool>> {
        let mut out = Vec::new();
        for &node in &self.reduced.order {
            let open: Vec<usize> = self.reduced.out[node.index()].iter().copied().filter(|e| !self.covered[*e]).collect();
            if self.sets[node.index()].is_empty() || open.is_empty() && node != self.reduced.exit {
                continue;
            }
            let rest = self.reachable(&open);
            for set in &self.sets[node.index()] {
                out.push(set.iter().zip(&rest).map(|(a, b)| *a || *b).collect());
            }
        }
        out
    }

    /// The edges and all that is behind them.
    fn reachable(&self, from: &[usize]) -> Vec<bool> {
        let mut seen = vec![false; self.reduced.edges.len()];
        let mut stack = from.to_vec();
        while let Some(edge) = stack.pop() {
            if !std::mem::replace(&mut seen[edge], true) {
                stack.extend(&self.reduced.out[self.reduced.edges[edge].2.index()]);
            }
        }
        seen
    }
}
