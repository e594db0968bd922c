//! What it costs at least to distinguish one path from all others of its [end](trodden_flow::part::Ends), however the end's paths
//! are divided among copies.
//!
//! Some copy profiles the path `p`, so no other path with `p`'s end has its sum there. Another path leaves `p` and
//! comes back, once or more often; so for each *detour* from a node of `p` to a later one there is a label on the
//! detour or on what `p` has in its place. Labels on `p` cut it into pieces, and within a piece every detour has to be
//! cut: in the graph without `p` the nodes of the piece are sources and sinks, and what a least cut executes is the
//! greatest flow. An edge that lies on detours of two pieces would close a cycle, so cuts of different pieces have
//! nothing in common, and the cheapest way to cut `p` into pieces is found from its beginning to its end. That is exact
//! for one path; the bound is the greatest of some paths.
//!
//! O(paths tried x length^2 x flow).

use std::collections::VecDeque;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::graph::Node;
use trodden_flow::part::Ends;

/// Longer paths are not looked at (then the bound is less).
const LONGEST: usize = 120;
/// Edges whose widest paths are tried, those executed most.
const MOST_TRIED: usize = 24;

/// Executions of labels, before the end, of a copy that profiles the most expensive of some paths of an end.
pub fn least_labels_of_one(dag: &Dag, ends: &Ends, frequencies: &[u64], end: DagEdgeId) -> u64 {
    let piece = Piece::new(dag, ends, frequencies, end);
    piece.paths().iter().filter(|p| p.len() <= LONGEST).map(|p| piece.least(p)).max().unwrap_or(0)
}

/// The executed edges that lead to an end: what is not executed is labelled for nothing.
struct Piece<'a> {
    dag: &'a Dag,
    frequencies: &'a [u64],
    /// Edges by node.
    out: Vec<Vec<DagEdgeId>>,
    into: Vec<Vec<DagEdgeId>>,
    /// In topological order.
    edges: Vec<DagEdgeId>,
    last: Node,
}

impl Piece<'_> {
    fn new<'a>(dag: &'a Dag, ends: &Ends, frequencies: &'a [u64], end: DagEdgeId) -> Piece<'a> {
        let none = || vec![Vec::new(); dag.node_count()];
        let last = dag.edge(end).from;
        let mut piece = Piece { dag, frequencies, out: none(), into: none(), edges: Vec::new(), last };
        let mut leads = vec![false; dag.node_count()];
        leads[last.index()] = true;
        for &node in dag.order().iter().rev().filter(|n| !ends.is_decided(**n)) {
            for &edge in dag.out(node) {
                let to = dag.edge(edge).to;
                if frequencies[edge.index()] > 0 && leads[to.index()] && !ends.is_decided(to) {
                    leads[node.index()] = true;
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

    /// The widest path over each of the most executed edges: the one whose least executed edge is executed most.
    fn paths(&self) -> Vec<Vec<DagEdgeId>> {
        let nodes = self.dag.node_count();
        let (mut from, mut to) = (vec![(0, None); nodes], vec![(0, None); nodes]);
        (from[self.dag.entry().index()].0, to[self.last.index()].0) = (u64::MAX, u64::MAX);
        for &edge in self.by_place().iter() {
            let (tail, head) = self.at(edge);
            let width = from[tail].0.min(self.executed(edge));
            if width > from[head].0 {
                from[head] = (width, Some(edge));
            }
        }
        for &edge in self.by_place().iter().rev() {
            let (tail, head) = self.at(edge);
            let width = to[head].0.min(self.executed(edge));
            if width > to[tail].0 {
                to[tail] = (width, Some(edge));
            }
        }
        let mut tried = self.edges.clone();
        tried.sort_by_key(|e| (std::cmp::Reverse(self.executed(*e)), *e));
        let over = |edge: DagEdgeId| {
            let (mut before, mut behind) = (Vec::new(), Vec::new());
            let (tail, head) = self.at(edge);
            let mut node = tail;
            while let Some(step) = from[node].1 {
                before.push(step);
                node = self.at(step).0;
            }
            let mut node = head;
            while let Some(step) = to[node].1 {
                behind.push(step);
                node = self.at(step).1;
            }
            before.reverse();
            before.push(edge);
            before.extend(behind);
            before
        };
        let mut paths: Vec<Vec<DagEdgeId>> = tried.into_iter().take(MOST_TRIED).map(over).collect();
        paths.sort();
        paths.dedup();
        // What is executed but not reached by executed edges is no path.
        paths.retain(|p| self.at(p[0]).0 == self.dag.entry().index());
        paths
    }

    fn at(&self, edge: DagEdgeId) -> (usize, usize) {
        (self.dag.edge(edge).from.index(), self.dag.edge(edge).to.index())
    }

    /// Edges in the order of the nodes from which they lead.
    fn by_place(&self) -> Vec<DagEdgeId> {
        self.dag.order().iter().flat_map(|n| self.out[n.index()].iter().copied()).collect()
    }

    /// What labels execute at least that distinguish this path from all others.
    fn least(&self, path: &[DagEdgeId]) -> u64 {
        let nodes: Vec<usize> = path.iter().map(|e| self.at(*e).0).chain([self.last.index()]).collect();
        // Of the path's beginning, before each node: with a label on the edge in front of the node.
        let mut before = vec![u64::MAX; nodes.len()];
        before[0] = 0;
        let mut least = u64::MAX;
        for first in 0..nodes.len() {
            let mut flow = Flow::new(self, path);
            for last in first..nodes.len() {
                let cut = flow.with(nodes[last]);
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

/// A flow from nodes of a path to later ones beside it, which grows as the path's piece grows.
struct Flow<'a> {
    piece: &'a Piece<'a>,
    /// What more an edge can take, and what can be taken back.
    left: Vec<u64>,
    back: Vec<u64>,
    within: Vec<bool>,
    on_path: Vec<bool>,
    sum: u64,
}

impl Flow<'_> {
    fn new<'a>(piece: &'a Piece<'a>, path: &[DagEdgeId]) -> Flow<'a> {
        let count = piece.dag.edges().len();
        let mut on_path = vec![false; count];
        path.iter().for_each(|e| on_path[e.index()] = true);
        let left = (0..count).map(|at| if on_path[at] { 0 } else { piece.frequencies[at] }).collect();
        Flow { piece, left, back: vec![0; count], within: vec![false; piece.dag.node_count()], on_path, sum: 0 }
    }

    /// The greatest flow when one more node is a source and a sink. It is the last one so far: flow through it was not
    /// there, flow to it is new.
    fn with(&mut self, node: usize) -> u64 {
        self.within[node] = true;
        // Flow that came through the node goes on to where it went; it counts once, as one that comes and one that goes
        // count as two detours.
        let through: u64 = self.piece.into[node].iter().map(|e| self.back[e.index()]).sum();
        self.sum = self.sum.saturating_add(through);
        while let Some(trace) = self.trace() {
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

    /// A path on which more can flow: from a node of the piece to one, over others.
    fn trace(&self) -> Option<Vec<(DagEdgeId, bool)>> {
        let nodes = self.within.len();
        let mut by: Vec<Option<(DagEdgeId, bool)>> = vec![None; nodes];
        let mut seen = self.within.clone();
        let mut queue: VecDeque<usize> = (0..nodes).filter(|n| self.within[*n]).collect();
        while let Some(node) = queue.pop_front() {
            let is_start = self.within[node];
            let forth = self.piece.out[node].iter().filter(|e| self.left[e.index()] > 0 && !self.on_path[e.index()]);
            let forth = forth.map(|e| (*e, true, self.piece.at(*e).1));
            let back =
                self.piece.into[node].iter().filter(|e| !is_start && self.back[e.index()] > 0).map(|e| (*e, false, self.piece.at(*e).0));
            for (edge, is_forth, to) in forth.chain(back) {
                if self.within[to] && is_forth {
                    let mut trace = vec![(edge, true)];
                    let mut at = node;
                    while let Some((edge, forth)) = by[at] {
                        trace.push((edge, forth));
                        let (tail, head) = self.piece.at(edge);
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
