//! A lower bound on the cost of distinguishing paths with any labels.
//!
//! Two paths with the same [end](trodden_flow::part::PathEnds) have different sums only if an edge on which they differ has a label. So
//! labels must
//! *hit* every bubble: a pair of edge-disjoint paths between two nodes. The executions of a cheapest hitting set bound every labelling from
//! below, and [`min_label_executions_for_ends`] bounds them.
//!
//! An *edge of the net* represents a part of the graph between two nodes. It has two costs: the minimum executions of labels that hit all
//! bubbles inside (`open`), and the minimum if, in addition, each path through it has a label (`closed`). The difference is its price. The
//! net is reduced by the following rules; all but the last preserve the optimum:
//!
//! - *free*: an edge with price 0 is closed and removed. An edge on no bubble is also removed: the only edge of a node with no predecessor
//!   or with no successor;
//! - *parallel*: edges between the same two nodes become one, in which at most one of them stays open;
//! - *series*: the only edge into a node and the only edge out of it become one, in which at most one of them is closed;
//! - *contraction*: the only edge into a node does not have to be closed if closing all edges out of the node is no more expensive, and
//!   vice versa;
//! - *bubble*: the lowest price on a bubble is added to the bound, and subtracted from the prices of all edges of the bubble. Any hitting
//!   set pays at least this price for one of these edges, so the result is a lower bound (linear programming duality).
//!
//! On graphs of nested conditionals the first four rules suffice, and the bound is the optimum. O(nodes x edges) for each bubble.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::graph::NodeSet;
use trodden_flow::part::PathEnds;

/// Returns a lower bound on the number of label executions in a copy that profiles all paths of the interesting ends. `frequencies` are the
/// numbers of executions of the edges.
pub fn min_label_executions_for_ends(dag: &Dag, ends: &PathEnds, frequencies: &[u64], interesting: &[DagEdgeId]) -> u64 {
    let mut net = SeparationNetwork::new(dag, ends, frequencies, interesting);
    loop {
        net.reduce();
        if !net.add_price_of_bubble() {
            return net.bound;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SeparationNetworkEdge {
    from: usize,
    to: usize,
    open: u64,
    closed: u64,
}

impl SeparationNetworkEdge {
    fn price(&self) -> u64 {
        self.closed - self.open
    }
}

struct SeparationNetwork {
    edges: Vec<Option<SeparationNetworkEdge>>,
    /// Edges out of and into each node, including removed ones until the node is visited.
    out: Vec<Vec<usize>>,
    into: Vec<Vec<usize>>,
    /// The lower bound so far: every hitting set costs at least this much.
    bound: u64,
    work: Vec<usize>,
}

impl SeparationNetwork {
    /// Builds the net of the edges from which an interesting end is reachable.
    fn new(dag: &Dag, ends: &PathEnds, frequencies: &[u64], interesting: &[DagEdgeId]) -> SeparationNetwork {
        let nodes = dag.node_count();
        let mut net = SeparationNetwork {
            edges: Vec::new(),
            out: vec![Vec::new(); nodes],
            into: vec![Vec::new(); nodes],
            bound: 0,
            work: Vec::new(),
        };
        let mut leads = NodeSet::from_members(nodes, interesting.iter().map(|e| dag.edge(*e).from));
        for &node in dag.order().iter().rev().filter(|n| !ends.is_after_path_end(**n)) {
            for &edge in dag.out(node) {
                let to = dag.edge(edge).to;
                if !ends.is_after_path_end(to) && leads.contains(to) {
                    leads.insert(node);
                    net.add_edge(SeparationNetworkEdge { from: node.index(), to: to.index(), open: 0, closed: frequencies[edge.index()] });
                }
            }
        }
        net.work = (0..nodes).collect();
        net
    }

    fn add_edge(&mut self, edge: SeparationNetworkEdge) {
        let id = self.edges.len();
        self.edges.push(Some(edge));
        self.out[edge.from].push(id);
        self.into[edge.to].push(id);
    }

    fn take_edge(&mut self, id: usize) -> SeparationNetworkEdge {
        let edge = self.edges[id].take().expect("an edge that is left");
        self.work.extend([edge.from, edge.to]);
        edge
    }

    /// Removes an edge that needs no decision, because closing it has no additional cost, or because it is on no bubble.
    fn remove_decided_edge(&mut self, id: usize) {
        let edge = self.take_edge(id);
        self.bound = self.bound.saturating_add(edge.open);
    }

    fn price(&self, ids: &[usize]) -> u64 {
        ids.iter().filter_map(|id| self.edges[*id]).fold(0, |sum, edge| sum.saturating_add(edge.price()))
    }

    fn reduce(&mut self) {
        while let Some(node) = self.work.pop() {
            self.out[node].retain(|id| self.edges[*id].is_some());
            self.into[node].retain(|id| self.edges[*id].is_some());
            if !self.remove_free_or_only_edge(node) && !self.join_parallel(node) {
                self.join_series(node);
            }
        }
    }

    fn remove_free_or_only_edge(&mut self, node: usize) -> bool {
        let (into, out) = (&self.into[node], &self.out[node]);
        let free = out.iter().copied().find(|id| self.edges[*id].is_some_and(|w| w.price() == 0));
        let single = match (into.as_slice(), out.as_slice()) {
            ([], [only]) | ([only], []) => Some(*only),
            _ => None,
        };
        free.or(single).map(|id| self.remove_decided_edge(id)).is_some()
    }

    fn join_parallel(&mut self, node: usize) -> bool {
        let mut first = HashMap::new();
        let pair = self.out[node].iter().find_map(|id| {
            let to = self.edges[*id]?.to;
            first.insert(to, *id).map(|other| (other, *id))
        });
        let Some((one, other)) = pair else { return false };
        let (one, other) = (self.take_edge(one), self.take_edge(other));
        let closed = one.closed.saturating_add(other.closed);
        self.add_edge(SeparationNetworkEdge { open: closed - one.price().max(other.price()), closed, ..one });
        true
    }

    fn join_series(&mut self, node: usize) {
        match (self.into[node].as_slice(), self.out[node].as_slice()) {
            (&[before], &[after]) => {
                let (before, after) = (self.take_edge(before), self.take_edge(after));
                let open = before.open.saturating_add(after.open);
                let closed = open.saturating_add(before.price().min(after.price()));
                self.add_edge(SeparationNetworkEdge { from: before.from, to: after.to, open, closed });
            }
            (&[before], after) if self.price(&[before]) >= self.price(after) => {
                let after = after.to_vec();
                let from = self.take_edge(before);
                self.bound = self.bound.saturating_add(from.open);
                for id in after {
                    let edge = self.take_edge(id);
                    self.add_edge(SeparationNetworkEdge { from: from.from, ..edge });
                }
            }
            (before, &[after]) if self.price(&[after]) >= self.price(before) => {
                let before = before.to_vec();
                let to = self.take_edge(after);
                self.bound = self.bound.saturating_add(to.open);
                for id in before {
                    let edge = self.take_edge(id);
                    self.add_edge(SeparationNetworkEdge { to: to.to, ..edge });
                }
            }
            _ => {}
        }
    }

    /// Adds the price of a bubble that contains the cheapest remaining edge. Returns false if no edge is left.
    fn add_price_of_bubble(&mut self) -> bool {
        let left = (0..self.edges.len()).filter(|id| self.edges[*id].is_some());
        let Some(cheapest) = left.min_by_key(|id| self.edges[*id].map(|w| w.price())) else { return false };
        let Some(bubble) = self.find_bubble(cheapest) else {
            self.remove_decided_edge(cheapest);
            return true;
        };
        let price = bubble.iter().filter_map(|id| self.edges[*id]).map(|w| w.price()).min().unwrap_or(0);
        self.bound = self.bound.saturating_add(price);
        for id in bubble {
            if let Some(edge) = &mut self.edges[id] {
                edge.closed -= price;
                self.work.extend([edge.from, edge.to]);
            }
        }
        true
    }

    /// Returns the edges of a bubble that contains this edge, if there is one: it begins at the nearest predecessor from which a second
    /// path leads to a node after the edge.
    fn find_bubble(&self, through: usize) -> Option<Vec<usize>> {
        let edge = self.edges[through]?;
        let after = self.search_breadth_first(edge.to, |w| w.from, |w| w.to, &self.out, |_| true);
        let before = self.search_breadth_first(edge.from, |w| w.to, |w| w.from, &self.into, |_| true);
        for &start in &before.order {
            let mut bubble = before.edges_back_to_start(start, &self.edges, |w| w.to);
            bubble.push(through);
            let other = self.search_breadth_first(start, |w| w.from, |w| w.to, &self.out, |id| !bubble.contains(&id));
            if let Some(&end) = other.order.iter().find(|n| after.by.contains_key(n)) {
                bubble.extend(after.edges_back_to_start(end, &self.edges, |w| w.from));
                bubble.extend(other.edges_back_to_start(end, &self.edges, |w| w.from));
                return Some(bubble);
            }
        }
        None
    }

    fn search_breadth_first(
        &self,
        start: usize,
        near: fn(&SeparationNetworkEdge) -> usize,
        far: fn(&SeparationNetworkEdge) -> usize,
        at: &[Vec<usize>],
        may: impl Fn(usize) -> bool,
    ) -> SeparationSearch {
        let mut found = SeparationSearch { by: HashMap::from([(start, None)]), order: vec![start] };
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for &id in at[node].iter().filter(|id| may(**id)) {
                let Some(edge) = self.edges[id].filter(|w| near(w) == node) else { continue };
                if let Entry::Vacant(unseen) = found.by.entry(far(&edge)) {
                    unseen.insert(Some(id));
                    found.order.push(far(&edge));
                    queue.push_back(far(&edge));
                }
            }
        }
        found
    }
}

/// The nodes found, nearest first, and the edge by which each was reached.
struct SeparationSearch {
    by: HashMap<usize, Option<usize>>,
    order: Vec<usize>,
}

impl SeparationSearch {
    /// Returns the edges from a node back to the start of the search. `back` returns the node of an edge that is closer to the start.
    fn edges_back_to_start(
        &self,
        node: usize,
        edges: &[Option<SeparationNetworkEdge>],
        back: fn(&SeparationNetworkEdge) -> usize,
    ) -> Vec<usize> {
        let (mut trace, mut node) = (Vec::new(), node);
        while let Some(id) = self.by.get(&node).copied().flatten() {
            trace.push(id);
            node = edges[id].as_ref().map_or(node, back);
        }
        trace
    }
}
