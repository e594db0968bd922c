//! A lower bound on the cost of distinguishing one path from all others of its [end](trodden_flow::part::PathEnds), for any division of the
//! end's paths among copies.
//!
//! A copy profiles the path `p`, so no other path of the end has the sum of `p` in this copy. Hence, each *detour*, from a node of `p` to a
//! later one, has a label on it or on the part of `p` that it bypasses. Labels on `p` divide it into pieces. Within a piece every detour
//! must be cut: in the graph without `p`, the nodes of the piece are sources and sinks, and the minimum cut equals the maximum flow. An
//! edge on detours of two pieces would close a cycle, so the cuts are disjoint, and dynamic programming finds the cheapest division. This
//! is exact for one path. The bound is the maximum over some paths. O(paths tried x length^2 x flow).

use std::collections::VecDeque;
use trodden_flow::dag::{Dag, DagEdgeId, DagEdgeSet};
use trodden_flow::graph::{Node, NodeSet};
use trodden_flow::part::PathEnds;

/// Maximum number of edges of examined paths. Ignoring longer paths lowers the bound.
const MAX_PATH_EDGES: usize = 120;
/// Number of edges, starting with the most frequent one, for which the widest path through the edge is tried.
const MAX_TRIED_EDGES: usize = 24;

/// Returns a lower bound on the executions of labels in a copy that profiles the most expensive one of several paths with an end. Labels on
/// the end itself do not count.
pub fn min_label_executions_for_one_path(dag: &Dag, ends: &PathEnds, frequencies: &[u64], end: DagEdgeId) -> u64 {
    let piece = ExecutedPiece::new(dag, ends, frequencies, end);
    piece.widest_paths().iter().filter(|p| p.len() <= MAX_PATH_EDGES).map(|p| piece.min_label_executions(p)).max().unwrap_or(0)
}

/// The executed edges that lead to an end. Edges that are not executed are omitted, because labels on them cost nothing.
struct ExecutedPiece<'a> {
    dag: &'a Dag,
    frequencies: &'a [u64],
    out: Vec<Vec<DagEdgeId>>,
    into: Vec<Vec<DagEdgeId>>,
    edges: Vec<DagEdgeId>,
    last: Node,
}

impl ExecutedPiece<'_> {
    fn new<'a>(dag: &'a Dag, ends: &PathEnds, frequencies: &'a [u64], end: DagEdgeId) -> ExecutedPiece<'a> {
        let none = || vec![Vec::new(); dag.node_count()];
        let last = dag.edge(end).from;
        let mut piece = ExecutedPiece { dag, frequencies, out: none(), into: none(), edges: Vec::new(), last };
        let mut leads = NodeSet::from_members(dag.node_count(), [last]);
        for &node in dag.order().iter().rev().filter(|n| !ends.is_after_path_end(**n)) {
            for &edge in dag.out(node) {
                let to = dag.edge(edge).to;
                if frequencies[edge.index()] > 0 && leads.contains(to) && !ends.is_after_path_end(to) {
                    leads.insert(node);
                    piece.out[node.index()].push(edge);
                    piece.into[to.index()].push(edge);
                    piece.edges.push(edge);
                }
            }
        }
        piece.edges.reverse();
        piece
    }

    fn executed(&self, edge: DagEdgeId) -> u64 {
        self.frequencies[edge.index()]
    }

    /// For each of the most frequent edges, returns the widest path through it: the path whose least frequent edge is executed most often.
    fn widest_paths(&self) -> Vec<Vec<DagEdgeId>> {
        let nodes = self.dag.node_count();
        let (mut from, mut to) = (vec![(0, None); nodes], vec![(0, None); nodes]);
        (from[self.dag.entry().index()].0, to[self.last.index()].0) = (u64::MAX, u64::MAX);
        for &edge in self.in_topological_order().iter() {
            let (tail, head) = self.endpoints(edge);
            let width = from[tail].0.min(self.executed(edge));
            if width > from[head].0 {
                from[head] = (width, Some(edge));
            }
        }
        for &edge in self.in_topological_order().iter().rev() {
            let (tail, head) = self.endpoints(edge);
            let width = to[head].0.min(self.executed(edge));
            if width > to[tail].0 {
                to[tail] = (width, Some(edge));
            }
        }
        let mut tried = self.edges.clone();
        tried.sort_by_key(|e| (std::cmp::Reverse(self.executed(*e)), *e));
        let over = |edge: DagEdgeId| {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            let (tail, head) = self.endpoints(edge);
            let mut node = tail;
            while let Some(step) = from[node].1 {
                before.push(step);
                node = self.endpoints(step).0;
            }
            let mut node = head;
            while let Some(step) = to[node].1 {
                after.push(step);
                node = self.endpoints(step).1;
            }
            before.reverse();
            before.push(edge);
            before.extend(after);
            before
        };
        let mut paths: Vec<Vec<DagEdgeId>> = tried.into_iter().take(MAX_TRIED_EDGES).map(over).collect();
        paths.sort();
        paths.dedup();
        // Frequencies may be inconsistent: an executed edge may not be reachable over executed edges.
        paths.retain(|p| self.endpoints(p[0]).0 == self.dag.entry().index());
        paths
    }

    fn endpoints(&self, edge: DagEdgeId) -> (usize, usize) {
        (self.dag.edge(edge).from.index(), self.dag.edge(edge).to.index())
    }

    fn in_topological_order(&self) -> Vec<DagEdgeId> {
        self.dag.order().iter().flat_map(|n| self.out[n.index()].iter().copied()).collect()
    }

    /// Returns the minimum number of label executions that distinguish this path from all others.
    fn min_label_executions(&self, path: &[DagEdgeId]) -> u64 {
        let nodes: Vec<usize> = path.iter().map(|e| self.endpoints(*e).0).chain([self.last.index()]).collect();
        // For each node of the path, the minimum cost of the prefix that ends there, if the prefix has a label on its last edge.
        let mut before = vec![u64::MAX; nodes.len()];
        before[0] = 0;
        let mut least = u64::MAX;
        for first in 0..nodes.len() {
            let mut flow = DetourFlow::new(self, path);
            for last in first..nodes.len() {
                let cut = flow.extend(nodes[last]);
                let sum = before[first].saturating_add(cut);
                match path.get(last) {
                    Some(label) => before[last + 1] = before[last + 1].min(sum.saturating_add(self.executed(*label))),
                    None => least = least.min(sum),
                }
                if sum >= least {
                    break;
                }
            }
        }
        least
    }
}

/// The maximum flow along detours between the nodes of a piece of the path. Nodes can be added to the piece, which increases the flow.
struct DetourFlow<'a> {
    piece: &'a ExecutedPiece<'a>,
    left: Vec<u64>,
    back: Vec<u64>,
    within: Vec<bool>,
    on_path: DagEdgeSet,
    sum: u64,
}

impl DetourFlow<'_> {
    fn new<'a>(piece: &'a ExecutedPiece<'a>, path: &[DagEdgeId]) -> DetourFlow<'a> {
        let count = piece.dag.edges().len();
        let on_path = DagEdgeSet::from_members(count, path.iter().copied());
        let left = piece.dag.edge_ids().map(|e| if on_path.contains(e) { 0 } else { piece.executed(e) }).collect();
        DetourFlow { piece, left, back: vec![0; count], within: vec![false; piece.dag.node_count()], on_path, sum: 0 }
    }

    /// Adds a node to the piece, which makes it a source and a sink, and returns the maximum flow. The node must come after all others of
    /// the piece.
    fn extend(&mut self, node: usize) -> u64 {
        self.within[node] = true;
        // Existing flow through the node becomes two detours, one that ends here and one that begins here.
        let through: u64 = self.piece.into[node].iter().map(|e| self.back[e.index()]).sum();
        self.sum = self.sum.saturating_add(through);
        while let Some(trace) = self.find_augmenting_path() {
            let width = trace.iter().map(|(e, forth)| if *forth { self.left[e.index()] } else { self.back[e.index()] }).min().unwrap_or(0);
            for (edge, forth) in trace {
                let (less, more) = if forth { (&mut self.left, &mut self.back) } else { (&mut self.back, &mut self.left) };
                less[edge.index()] -= width;
                more[edge.index()] += width;
            }
            self.sum = self.sum.saturating_add(width);
        }
        self.sum
    }

    /// Returns an augmenting path between two nodes of the piece.
    fn find_augmenting_path(&self) -> Option<Vec<(DagEdgeId, bool)>> {
        let nodes = self.within.len();
        let mut by: Vec<Option<(DagEdgeId, bool)>> = vec![None; nodes];
        let mut seen = self.within.clone();
        let mut queue: VecDeque<usize> = (0..nodes).filter(|n| self.within[*n]).collect();
        while let Some(node) = queue.pop_front() {
            let is_start = self.within[node];
            let forth = self.piece.out[node].iter().filter(|e| self.left[e.index()] > 0 && !self.on_path.contains(**e));
            let forth = forth.map(|e| (*e, true, self.piece.endpoints(*e).1));
            let back = self.piece.into[node]
                .iter()
                .filter(|e| !is_start && self.back[e.index()] > 0)
                .map(|e| (*e, false, self.piece.endpoints(*e).0));
            for (edge, is_forth, to) in forth.chain(back) {
                if self.within[to] && is_forth {
                    let mut trace = vec![(edge, true)];
                    let mut at = node;
                    while let Some((edge, forth)) = by[at] {
                        trace.push((edge, forth));
                        let (tail, head) = self.piece.endpoints(edge);
                        at = if forth { tail } else { head };
                    }
                    return Some(trace);
                }
                if !seen[to] {
                    seen[to] = true;
                    by[to] = Some((edge, is_forth));
                    queue.push_back(to);
                }
            }
        }
        None
    }
}
