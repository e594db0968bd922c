//! Which edges of known paths are the known-path region, the version of a function with hardly any probes.
//!
//! What a region costs ([`super::prices`]) follows from the executions of the known paths: a path through the instrumented
//! code for each path that is not wholly in it; a look-up where paths end that are in the region and might be unknown;
//! keeping the register wherever it is needed and edges with different values meet. We begin with all edges of known
//! paths, and take whatever move lowers the cost most, until none does:
//!
//! - leave out one edge;
//! - of the edges into a node keep the one that is executed most: there the register is a constant;
//! - leave out edges until no unknown path ends with some edge.
//!
//! Greedy; the best region is a matter of exponential search. Where it costs much, nodes may be several ([`super::contexts`]).

use super::KnownPath;
use super::prices::Prices;
use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// Improvements below this part of the cost are not worth a move. With a hundredth of it, three programs execute 0 to 0.25 % more; with
/// thirty times as much, within 0.2 % (docs/benchmarks/constants.md).
const WORTHWHILE: f64 = 1e-3;
/// Functions are searched for so many steps; what was found until then is taken: bounds the time of a build.
const MOST_STEPS: usize = 300_000_000;

/// Known paths, and the edges of the region.
pub struct KnownPathRegion<'a> {
    dag: &'a Dag,
    /// The edges that are in the region.
    pub edges: Vec<bool>,
    paths: Vec<KnownPath>,
    prices: Prices,
    /// For each edge, the paths that take it.
    takers: Vec<Vec<usize>>,
    /// For each path, how many of its edges are not in the region.
    outside: Vec<u32>,
    /// Executions of each edge on paths that are in the region, and how many such paths end with it.
    flow: Vec<f64>,
    ends: Vec<u64>,
    steps: usize,
}

impl<'a> KnownPathRegion<'a> {
    /// All edges of known paths, which come with their executions.
    pub fn all(dag: &'a Dag, paths: Vec<KnownPath>, prices: Prices) -> KnownPathRegion<'a> {
        let edges = dag.edges().len();
        let mut takers = vec![Vec::new(); edges];
        for (at, path) in paths.iter().enumerate() {
            path.edges.iter().for_each(|e| takers[e.index()].push(at));
        }
        let region = takers.iter().map(|t| !t.is_empty()).collect();
        let (outside, flow, ends) = (vec![0; paths.len()], vec![0.0; edges], vec![0; edges]);
        let mut all = KnownPathRegion { dag, edges: region, paths, prices, takers, outside, flow, ends, steps: 0 };
        (0..all.paths.len()).for_each(|at| all.account(at, 1.0));
        all
    }

    /// Leaves edges out as long as that makes it cheaper; then those that no path in the region takes any more, which would
    /// only be code that is never executed.
    pub fn improve(&mut self) {
        self.make_cheaper();
        for edge in self.dag.edge_ids() {
            if self.edges[edge.index()] && self.takers[edge.index()].iter().all(|at| self.outside[*at] > 0) {
                self.leave_out(edge);
            }
        }
    }

    fn make_cheaper(&mut self) {
        let mut cost = self.cost();
        while cost > 0.0 && self.steps < MOST_STEPS {
            let mut best: Option<(f64, Vec<DagEdgeId>)> = None;
            for edges in self.moves() {
                // One iteration may be too much already: it takes time with the square of the function's size.
                if self.steps >= MOST_STEPS {
                    break;
                }
                let new = self.cost_without(&edges);
                if best.as_ref().is_none_or(|(least, _)| new < *least) {
                    best = Some((new, edges));
                }
            }
            match best {
                Some((new, edges)) if new < cost * (1.0 - WORTHWHILE) => {
                    edges.iter().for_each(|e| self.leave_out(*e));
                    cost = new;
                }
                _ => return,
            }
        }
    }

    /// The edges of the region, and the paths.
    pub fn into_parts(self) -> (Vec<bool>, Vec<KnownPath>) {
        (self.edges, self.paths)
    }

    /// For each edge whether unknown paths in the region end with it.
    pub fn unclear(&self) -> Vec<bool> {
        let path_counts = self.path_counts();
        self.dag.edge_ids().map(|e| self.is_unclear(&path_counts, e)).collect()
    }

    fn is_end(&self, edge: DagEdgeId) -> bool {
        self.dag.edge(edge).to == self.dag.exit()
    }

    fn is_unclear(&self, path_counts: &[u64], edge: DagEdgeId) -> bool {
        self.is_end(edge) && self.edges[edge.index()] && path_counts[self.dag.edge(edge).from.index()] > self.ends[edge.index()]
    }

    /// What might be left out: edges, each move at once.
    fn moves(&mut self) -> Vec<Vec<DagEdgeId>> {
        let inner = |e: &DagEdgeId| self.edges[e.index()] && !self.is_end(*e);
        let mut moves: Vec<Vec<DagEdgeId>> = self.dag.edge_ids().filter(inner).map(|e| vec![e]).collect();
        for &node in self.dag.order().iter().filter(|n| **n != self.dag.exit()) {
            let mut into: Vec<DagEdgeId> = self.dag.incoming(node).iter().copied().filter(inner).collect();
            into.sort_by(|a, b| self.flow[b.index()].total_cmp(&self.flow[a.index()]).then(a.cmp(b)));
            if into.len() > 2 {
                moves.push(into.split_off(1));
            }
        }
        let path_counts = self.path_counts();
        let unclear: Vec<DagEdgeId> = self.dag.edge_ids().filter(|e| self.is_unclear(&path_counts, *e)).collect();
        moves.extend(unclear.into_iter().filter_map(|end| self.clearing(end)));
        moves
    }

    /// Edges without which no unknown path in the region ends with this one: each time the one on most of them for its executions.
    fn clearing(&mut self, end: DagEdgeId) -> Option<Vec<DagEdgeId>> {
        const MOST: usize = 32;
        if self.steps >= MOST_STEPS {
            return None;
        }
        let mut out = Vec::new();
        let found = loop {
            match self.most_unknown(end) {
                None => break true,
                Some(_) if out.len() == MOST => break false,
                Some(edge) => {
                    self.leave_out(edge);
                    out.push(edge);
                }
            }
        };
        out.iter().rev().for_each(|e| self.take_in(*e));
        found.then_some(out)
    }

    fn most_unknown(&mut self, end: DagEdgeId) -> Option<DagEdgeId> {
        let (dag, tail) = (self.dag, self.dag.edge(end).from);
        self.steps += 4 * dag.edges().len();
        let to = self.path_counts();
        if to[tail.index()] == self.ends[end.index()] {
            return None;
        }
        let mut from = vec![0u64; dag.node_count()];
        from[tail.index()] = 1;
        for &node in dag.order().iter().rev() {
            from[node.index()] += self.inner_out(node).map(|e| from[dag.edge(e).to.index()]).sum::<u64>();
        }
        let mut known = vec![0u64; dag.edges().len()];
        for &at in self.takers[end.index()].iter().filter(|at| self.outside[**at] == 0) {
            self.paths[at].edges.iter().for_each(|e| known[e.index()] += 1);
        }
        let unknown = |e: DagEdgeId| {
            let edge = dag.edge(e);
            if !self.edges[e.index()] || self.is_end(e) { 0 } else { to[edge.from.index()] * from[edge.to.index()] - known[e.index()] }
        };
        let worth = |e: &DagEdgeId| unknown(*e) as f64 / (self.flow[e.index()] + 1e-9);
        dag.edge_ids().filter(|e| unknown(*e) > 0).max_by(|a, b| worth(a).total_cmp(&worth(b)).then(b.cmp(a)))
    }

    fn inner_out(&self, node: Node) -> impl Iterator<Item = DagEdgeId> + '_ {
        self.dag.out(node).iter().copied().filter(|e| self.edges[e.index()])
    }

    fn leave_out(&mut self, edge: DagEdgeId) {
        self.edges[edge.index()] = false;
        for at in self.takers[edge.index()].clone() {
            if self.outside[at] == 0 {
                self.account(at, -1.0);
            }
            self.outside[at] += 1;
        }
    }

    fn take_in(&mut self, edge: DagEdgeId) {
        self.edges[edge.index()] = true;
        for at in self.takers[edge.index()].clone() {
            self.outside[at] -= 1;
            if self.outside[at] == 0 {
                self.account(at, 1.0);
            }
        }
    }

    /// Adds a path to what is in the region, or takes it away.
    fn account(&mut self, at: usize, sign: f64) {
        let path = &self.paths[at];
        self.steps += path.edges.len();
        path.edges.iter().for_each(|e| self.flow[e.index()] += sign * path.own_executions() as f64);
        if let Some(end) = path.edges.last() {
            self.flow[end.index()] += sign * (path.executions - path.own_executions()) as f64;
            let ends = &mut self.ends[end.index()];
            *ends = if sign > 0.0 { *ends + 1 } else { *ends - 1 };
        }
    }

    fn cost_without(&mut self, edges: &[DagEdgeId]) -> f64 {
        edges.iter().for_each(|e| self.leave_out(*e));
        let cost = self.cost();
        edges.iter().rev().for_each(|e| self.take_in(*e));
        cost
    }

    /// Nodes that are in the region.
    pub fn node_count(&self) -> usize {
        let path_counts = self.path_counts();
        self.dag.order().iter().filter(|n| **n != self.dag.exit() && path_counts[n.index()] > 0).count()
    }

    /// Instructions that the known paths cost.
    pub fn cost(&mut self) -> f64 {
        self.steps += 3 * self.dag.edges().len() + self.paths.len();
        let detours: f64 =
            self.paths.iter().zip(&self.outside).filter(|(_, outside)| **outside > 0).map(|(path, _)| path.executions as f64).sum();
        let path_counts = self.path_counts();
        let mut needed = vec![false; self.dag.node_count()];
        let (mut lookups, mut kept) = (0.0, 0.0);
        for &node in self.dag.order().iter().rev().filter(|n| **n != self.dag.exit() && path_counts[n.index()] > 0) {
            for &edge in self.dag.out(node) {
                if self.is_unclear(&path_counts, edge) {
                    lookups += self.flow[edge.index()];
                    needed[node.index()] = true;
                }
                needed[node.index()] |= !self.edges[edge.index()] || needed[self.dag.edge(edge).to.index()];
            }
            let into =
                || self.dag.incoming(node).iter().filter(|e| self.edges[e.index()] && path_counts[self.dag.edge(**e).from.index()] > 0);
            if needed[node.index()] && into().count() > 1 {
                kept += into().map(|e| self.flow[e.index()]).sum::<f64>();
            }
        }
        self.prices.executed(detours, lookups, kept)
    }

    /// For each node the paths in the region from the entry: no more than there are paths.
    fn path_counts(&self) -> Vec<u64> {
        let mut path_counts = vec![0u64; self.dag.node_count()];
        path_counts[self.dag.entry().index()] = 1;
        for &node in self.dag.order() {
            for edge in self.inner_out(node) {
                path_counts[self.dag.edge(edge).to.index()] += path_counts[node.index()];
            }
        }
        path_counts
    }
}
