//! Bounds on the execution counts of all nodes, derived from the known counts of some nodes.
//!
//! The counts of a node's in-edges sum to the node's count, except at the entry, which calls also reach. The counts of its out-edges sum
//! to the same count, or to less if the execution may end in the node. Intervals for nodes and edges are narrowed by these equations until
//! they no longer change.
//!
//! If the known counts are correct, each interval contains the true count after every pass, so the limit on passes only costs precision.
//! Intervals that would become empty, because counts contradict each other, are not narrowed. Time: O(passes * edges).

use crate::dominators::immediate_dominators;
use crate::{Edge, Graph, Node};

const MAX_NARROWING_PASSES: usize = 64;

/// A closed interval of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountInterval {
    /// The minimum count.
    pub low: u64,
    /// The maximum count, or `u64::MAX` if there is no upper bound.
    pub high: u64,
}

impl CountInterval {
    /// The interval of an unknown count.
    pub const ANY: CountInterval = CountInterval { low: 0, high: u64::MAX };

    /// Returns the interval of a known count.
    pub fn exactly(count: u64) -> CountInterval {
        CountInterval { low: count, high: count }
    }

    /// Returns the interval of a count with a lower bound only.
    pub fn at_least(count: u64) -> CountInterval {
        CountInterval { low: count, high: u64::MAX }
    }

    /// Intersects with another interval, unless the intersection is empty. Returns whether the interval changed.
    fn narrow_to(&mut self, low: u64, high: u64) -> bool {
        let new = CountInterval { low: self.low.max(low), high: self.high.min(high) };
        let changes = new.low <= new.high && new != *self;
        if changes {
            *self = new;
        }
        changes
    }
}

/// Narrows the bounds on the number of executions of each node.
///
/// If the entry has no incoming edge, its count is the number of calls to the function. `may_end` is true for nodes in which an execution
/// may end without taking an out-edge, for example in a call that does not return.
pub fn compute_node_bounds(graph: &Graph, nodes: Vec<CountInterval>, may_end: &[bool]) -> Vec<CountInterval> {
    narrow_bounds(graph, nodes, may_end).0
}

/// Returns the nodes whose given count is 0 although their neighbours' counts require executions. If any one of several nodes could account
/// for the missing executions, all of them are returned.
pub fn find_contradicted_nodes(graph: &Graph, nodes: Vec<CountInterval>, may_end: &[bool]) -> Vec<Node> {
    let (nodes, edges) = narrow_bounds(graph, nodes, may_end);
    let max_executions =
        |side: &[Edge], but: Edge| side.iter().filter(|e| **e != but).fold(0u64, |sum, e| sum.saturating_add(edges[e.index()].high));
    let leaves = |edge: &Edge| {
        let from = graph.from(*edge);
        !may_end.get(from.index()).copied().unwrap_or(false) && nodes[from.index()].low > max_executions(graph.out(from), *edge)
    };
    let enters = |edge: &Edge| {
        let to = graph.to(*edge);
        to != graph.entry() && nodes[to.index()].low > max_executions(graph.incoming(to), *edge)
    };
    let is_needed = |node: &Node| graph.incoming(*node).iter().any(leaves) || graph.out(*node).iter().any(enters);
    graph.nodes().filter(|n| nodes[n.index()].high == 0 && is_needed(n)).collect()
}

/// Returns, for each node, whether it is reachable from the entry over nodes and edges that may have been executed.
pub fn find_reachable_nodes(graph: &Graph, nodes: Vec<CountInterval>, may_end: &[bool]) -> Vec<bool> {
    let (nodes, edges) = narrow_bounds(graph, nodes, may_end);
    let mut found = vec![false; graph.node_count()];
    let mut left = vec![graph.entry()];
    while let Some(node) = left.pop() {
        if nodes[node.index()].high > 0 && !std::mem::replace(&mut found[node.index()], true) {
            left.extend(graph.out(node).iter().filter(|e| edges[e.index()].high > 0).map(|e| graph.to(*e)));
        }
    }
    found
}

/// Returns, for each node, whether it must have been executed because it dominates or postdominates an executed node. The analysis ignores
/// nodes that cannot have been executed.
pub fn find_inevitable_nodes(graph: &Graph, nodes: &[CountInterval], may_end: &[bool]) -> Vec<bool> {
    let end = graph.node_count();
    let (mut next, mut before) = (vec![Vec::new(); end + 1], vec![Vec::new(); end + 1]);
    for node in graph.nodes().filter(|node| nodes[node.index()].high > 0) {
        let ends = node == graph.exit() || graph.out(node).is_empty() || may_end.get(node.index()) == Some(&true);
        let to = graph.out(node).iter().map(|e| graph.to(*e).0).filter(|to| nodes[*to as usize].high > 0);
        next[node.index()].extend(to.chain(ends.then_some(end as u32)));
        next[node.index()].iter().for_each(|to| before[*to as usize].push(node.0));
    }
    let mut found = vec![false; end + 1];
    for (next, from) in [(&next, graph.entry().0), (&before, end as u32)] {
        let dominators = immediate_dominators(next, from);
        let mut seen = vec![false; end + 1];
        for mut node in (0..end).filter(|node| nodes[*node].low > 0) {
            while !std::mem::replace(&mut seen[node], true) {
                node = dominators[node].map_or(node, |n| n as usize);
            }
        }
        found.iter_mut().zip(seen).for_each(|(found, seen)| *found |= seen);
    }
    found.truncate(end);
    found
}

fn narrow_bounds(graph: &Graph, mut nodes: Vec<CountInterval>, may_end: &[bool]) -> (Vec<CountInterval>, Vec<CountInterval>) {
    nodes.resize(graph.node_count(), CountInterval::ANY);
    let mut edges = vec![CountInterval::ANY; graph.edge_count()];
    for _ in 0..MAX_NARROWING_PASSES {
        let mut changed = false;
        for node in graph.nodes() {
            let ends = may_end.get(node.index()).copied().unwrap_or(false);
            if node != graph.entry() {
                changed |= narrow_node_and_edges(&mut nodes[node.index()], &mut edges, graph.incoming(node), false);
            }
            // An execution that reaches a node without successors ends there.
            if node != graph.exit() && !graph.out(node).is_empty() {
                changed |= narrow_node_and_edges(&mut nodes[node.index()], &mut edges, graph.out(node), ends);
            }
        }
        if !changed {
            break;
        }
    }
    (nodes, edges)
}

/// Narrows the bounds of a node and of the edges on one side of it. The edges' counts sum to the node's count, or to at most that count if
/// `at_most` is true.
fn narrow_node_and_edges(node: &mut CountInterval, edges: &mut [CountInterval], side: &[Edge], at_most: bool) -> bool {
    let mut sums = IntervalSums::default();
    side.iter().for_each(|edge| sums.add(edges[edge.index()]));
    let mut changed = node.narrow_to(sums.low(), if at_most { u64::MAX } else { sums.high() });
    for edge in side {
        let edge = &mut edges[edge.index()];
        let others = sums.without_edge(*edge);
        let low = if at_most { 0 } else { node.low.saturating_sub(others.high()) };
        let high = if node.high == u64::MAX { u64::MAX } else { node.high.saturating_sub(others.low()) };
        if edge.narrow_to(low, high) {
            changed = true;
            sums = others;
            sums.add(*edge);
        }
    }
    changed
}

#[derive(Clone, Copy, Default)]
struct IntervalSums {
    low: u128,
    high: u128,
    /// Number of edges without an upper bound. `high` is the sum of the other edges' upper bounds.
    unbounded: usize,
}

impl IntervalSums {
    fn add(&mut self, edge: CountInterval) {
        self.low += u128::from(edge.low);
        self.high += if edge.high == u64::MAX { 0 } else { u128::from(edge.high) };
        self.unbounded += usize::from(edge.high == u64::MAX);
    }

    fn without_edge(self, edge: CountInterval) -> IntervalSums {
        let is_unbounded = edge.high == u64::MAX;
        IntervalSums {
            low: self.low - u128::from(edge.low),
            high: self.high - if is_unbounded { 0 } else { u128::from(edge.high) },
            unbounded: self.unbounded - usize::from(is_unbounded),
        }
    }

    fn low(self) -> u64 {
        u64::try_from(self.low).unwrap_or(u64::MAX)
    }

    fn high(self) -> u64 {
        if self.unbounded > 0 { u64::MAX } else { u64::try_from(self.high).unwrap_or(u64::MAX) }
    }
}
