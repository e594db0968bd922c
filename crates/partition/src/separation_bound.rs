//! What it costs at least to distinguish paths, however labels are chosen.
//!
//! Two paths with one [end](trodden_flow::part::Ends) have different sums only if one of the edges on which they differ has a label.
//! So labels must *hit* every bubble: two edges from one node to another that share no edge. What the edges of a
//! cheapest such set execute is a lower bound for every labelling, be its labels values, chords, or anything else, and
//! [`least_labels`] is a lower bound for that.
//!
//! An *edge of the net* stands for a part of the graph between two nodes, and has two costs: what labels in it execute at least so
//! that nothing within is confused (`open`), and what they do if besides no path through it is without a label
//! (`closed`); the difference is its price. At first each edge is an edge with costs 0 and its executions. None of the
//! following makes the optimum greater, and all but the last leave it as it is:
//!
//! - *free*: an edge without a price is closed, and out of the question. So is one on no bubble: the only edge from a node
//!   into which none leads, the only one into a node out of which none leads;
//! - *parallel*: edges from one node to another are one edge, of which one stays open at most;
//! - *series*: the only edge into a node and the only exit edge of it are one edge, of which one is closed at most;
//! - *contraction*: the only edge into a node need not be closed if closing all exit edges of it is no more expensive; in the same
//!   manner the only exit edge of one;
//! - *bubble*: some price `y` is paid for a bubble, and the prices of all its edges are less by that. Any set that hits it had to pay `y`
//!   for one of its edges, so this is a lower bound (linear programming duality).
//!
//! For graphs of nested conditionals the first four come to an end, and the bound is the optimum. O(nodes x edges) for each bubble.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::part::Ends;

/// Executions of labels that a copy has at least which profiles all paths of the interesting ends. `frequencies` has the
/// executions of each edge.
pub fn least_labels(dag: &Dag, ends: &Ends, frequencies: &[u64], interesting: &[DagEdgeId]) -> u64 {
    let mut net = Net::new(dag, ends, frequencies, interesting);
    loop {
        net.reduce();
        if !net.pay_for_a_bubble() {
            return net.paid;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct NetEdge {
    from: usize,
    to: usize,
    open: u64,
    closed: u64,
}

impl NetEdge {
    fn price(&self) -> u64 {
        self.closed - self.open
    }
}

/// The edges that are left.
struct Net {
    edges: Vec<Option<NetEdge>>,
    /// Edges out of, and into, each node; removed ones, too, until the node is visited.
    out: Vec<Vec<usize>>,
    into: Vec<Vec<usize>>,
    /// What is certain to be executed.
    paid: u64,
    /// Nodes to visit.
    work: Vec<usize>,
}

impl Net {
    /// The edges from which a interesting end is reached.
    fn new(dag: &Dag, ends: &Ends, frequencies: &[u64], interesting: &[DagEdgeId]) -> Net {
        let nodes = dag.node_count();
        let mut net = Net { edges: Vec::new(), out: vec![Vec::new(); nodes], into: vec![Vec::new(); nodes], paid: 0, work: Vec::new() };
        let mut leads = vec![false; nodes];
        interesting.iter().for_each(|e| leads[dag.edge(*e).from.index()] = true);
        for &node in dag.order().iter().rev().filter(|n| !ends.is_decided(**n)) {
            for &edge in dag.out(node) {
                let to = dag.edge(edge).to;
                if !ends.is_decided(to) && leads[to.index()] {
                    leads[node.index()] = true;
                    net.add(NetEdge { from: node.index(), to: to.index(), open: 0, closed: frequencies[edge.index()] });
                }
            }
        }
        net.work = (0..nodes).collect();
        net
    }

    fn add(&mut self, edge: NetEdge) {
        let id = self.edges.len();
        self.edges.push(Some(edge));
        self.out[edge.from].push(id);
        self.into[edge.to].push(id);
    }

    fn take(&mut self, id: usize) -> NetEdge {
        let edge = self.edges[id].take().expect("an edge that is left");
        self.work.extend([edge.from, edge.to]);
        edge
    }

    /// Takes an exit edge that needs no decision: it is closed for nothing, or on no bubble.
    fn resolve(&mut self, id: usize) {
        let edge = self.take(id);
        self.paid = self.paid.saturating_add(edge.open);
    }

    fn price(&self, ids: &[usize]) -> u64 {
        ids.iter().filter_map(|id| self.edges[*id]).fold(0, |sum, edge| sum.saturating_add(edge.price()))
    }

    fn reduce(&mut self) {
        while let Some(node) = self.work.pop() {
            self.out[node].retain(|id| self.edges[*id].is_some());
            self.into[node].retain(|id| self.edges[*id].is_some());
            if !self.resolve_free(node) && !self.join_parallel(node) {
                self.join_behind(node);
            }
        }
    }

    fn resolve_free(&mut self, node: usize) -> bool {
        let (into, out) = (&self.into[node], &self.out[node]);
        let free = out.iter().copied().find(|id| self.edges[*id].is_some_and(|w| w.price() == 0));
        let single = match (into.as_slice(), out.as_slice()) {
            ([], [only]) | ([only], []) => Some(*only),
            _ => None,
        };
        free.or(single).map(|id| self.resolve(id)).is_some()
    }

    fn join_parallel(&mut self, node: usize) -> bool {
        let mut first = HashMap::new();
        let pair = self.out[node].iter().find_map(|id| {
            let to = self.edges[*id]?.to;
            first.insert(to, *id).map(|other| (other, *id))
        });
        let Some((one, other)) = pair else { return false };
        let (one, other) = (self.take(one), self.take(other));
        let closed = one.closed.saturating_add(other.closed);
        self.add(NetEdge { open: closed - one.price().max(other.price()), closed, ..one });
        true
    }

    /// Series, and contraction.
    fn join_behind(&mut self, node: usize) {
        match (self.into[node].as_slice(), self.out[node].as_slice()) {
            (&[before], &[behind]) => {
                let (before, behind) = (self.take(before), self.take(behind));
                let open = before.open.saturating_add(behind.open);
                let closed = open.saturating_add(before.price().min(behind.price()));
                self.add(NetEdge { from: before.from, to: behind.to, open, closed });
            }
            (&[before], behind) if self.price(&[before]) >= self.price(behind) => {
                let behind = behind.to_vec();
                let from = self.take(before);
                self.paid = self.paid.saturating_add(from.open);
                for id in behind {
                    let edge = self.take(id);
                    self.add(NetEdge { from: from.from, ..edge });
                }
            }
            (before, &[behind]) if self.price(&[behind]) >= self.price(before) => {
                let before = before.to_vec();
                let to = self.take(behind);
                self.paid = self.paid.saturating_add(to.open);
                for id in before {
                    let edge = self.take(id);
                    self.add(NetEdge { to: to.to, ..edge });
                }
            }
            _ => {}
        }
    }

    /// Pays for a bubble with the cheapest edge that is left; whether there is any edge.
    fn pay_for_a_bubble(&mut self) -> bool {
        let left = (0..self.edges.len()).filter(|id| self.edges[*id].is_some());
        let Some(cheapest) = left.min_by_key(|id| self.edges[*id].map(|w| w.price())) else { return false };
        let Some(bubble) = self.bubble(cheapest) else {
            self.resolve(cheapest);
            return true;
        };
        let price = bubble.iter().filter_map(|id| self.edges[*id]).map(|w| w.price()).min().unwrap_or(0);
        self.paid = self.paid.saturating_add(price);
        for id in bubble {
            if let Some(edge) = &mut self.edges[id] {
                edge.closed -= price;
                self.work.extend([edge.from, edge.to]);
            }
        }
        true
    }

    /// The edges of a bubble with this one on it, if there is any: of all nodes before it the nearest from which another
    /// edge leads to a node behind it.
    fn bubble(&self, through: usize) -> Option<Vec<usize>> {
        let edge = self.edges[through]?;
        let behind = self.search(edge.to, |w| w.from, |w| w.to, &self.out, |_| true);
        let before = self.search(edge.from, |w| w.to, |w| w.from, &self.into, |_| true);
        for &start in &before.order {
            let mut bubble = before.trace(start, &self.edges, |w| w.to);
            bubble.push(through);
            let other = self.search(start, |w| w.from, |w| w.to, &self.out, |id| !bubble.contains(&id));
            if let Some(&end) = other.order.iter().find(|n| behind.by.contains_key(n)) {
                bubble.extend(behind.trace(end, &self.edges, |w| w.from));
                bubble.extend(other.trace(end, &self.edges, |w| w.from));
                return Some(bubble);
            }
        }
        None
    }

    /// Breadth first, over the edges that may be used.
    fn search(
        &self,
        start: usize,
        near: fn(&NetEdge) -> usize,
        far: fn(&NetEdge) -> usize,
        at: &[Vec<usize>],
        may: impl Fn(usize) -> bool,
    ) -> Search {
        let mut found = Search { by: HashMap::from([(start, None)]), order: vec![start] };
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

/// The nodes found, nearest first, and by which edge.
struct Search {
    by: HashMap<usize, Option<usize>>,
    order: Vec<usize>,
}

impl Search {
    /// The edges between a node and where the search began; `back` leads a step in that direction.
    fn trace(&self, node: usize, edges: &[Option<NetEdge>], back: fn(&NetEdge) -> usize) -> Vec<usize> {
        let (mut trace, mut node) = (Vec::new(), node);
        while let Some(id) = self.by.get(&node).copied().flatten() {
            trace.push(id);
            node = edges[id].as_ref().map_or(node, back);
        }
        trace
    }
}
