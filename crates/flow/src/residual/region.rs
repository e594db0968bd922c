//! Chooses the edges of known paths that form the known-path region, the version of a function with almost no probes.
//!
//! The cost of a region ([`super::prices`]) consists of a detour through the instrumented code for each execution of a path that is not
//! completely in it, a lookup if an unknown path may end in it, and the register at joins of edges with different values if it is needed.
//! The search starts with all edges of known paths and greedily makes the move that saves most: it removes an edge; or removes all edges
//! into a node except the most executed one, so that the register is a constant there; or removes edges until no unknown path ends with a
//! certain edge. Finding an optimal region would take exponential time.

use super::KnownPath;
use super::prices::RegionPrices;
use crate::dag::{Dag, DagEdgeId, DagEdgeSet};
use crate::graph::{Node, NodeSet};

/// Minimum relative improvement of a move. If this is 1e-5, three benchmark programs execute 0 to 0.3% more instructions; if it is 3e-2,
/// the difference is within 0.2% (docs/benchmarks/constants.md).
const MIN_COST_IMPROVEMENT_SHARE: f64 = 1e-3;
/// Maximum number of search steps for a function, which bounds the build time. After that many steps, the best region so far is used.
const MAX_SEARCH_STEPS: usize = 300_000_000;

/// The known paths, and the region's edges while the region is improved.
pub struct KnownPathRegion<'a> {
    dag: &'a Dag,
    pub edges: DagEdgeSet,
    paths: Vec<KnownPath>,
    prices: RegionPrices,
    /// For each edge, the paths that take it.
    paths_with: Vec<Vec<usize>>,
    /// For each path, the number of its edges that are not in the region.
    outside: Vec<u32>,
    /// For each edge, its executions on known paths that are completely in the region.
    flow: Vec<f64>,
    /// For each edge, the number of known paths that are completely in the region and end with the edge.
    ends: Vec<u64>,
    steps: usize,
}

impl<'a> KnownPathRegion<'a> {
    /// Creates the region of all edges of known paths.
    pub fn from_all_paths(dag: &'a Dag, paths: Vec<KnownPath>, prices: RegionPrices) -> KnownPathRegion<'a> {
        let edges = dag.edges().len();
        let mut paths_with = vec![Vec::new(); edges];
        for (at, path) in paths.iter().enumerate() {
            path.edges.iter().for_each(|e| paths_with[e.index()].push(at));
        }
        let region = DagEdgeSet::from_fn(edges, |e| !paths_with[e.index()].is_empty());
        let (outside, flow, ends) = (vec![0; paths.len()], vec![0.0; edges], vec![0; edges]);
        let mut all = KnownPathRegion { dag, edges: region, paths, prices, paths_with, outside, flow, ends, steps: 0 };
        (0..all.paths.len()).for_each(|at| all.add_or_remove_path(at, 1.0));
        all
    }

    /// Removes edges as long as that lowers the cost, and then the edges that no known path in the region takes.
    pub fn remove_edges_while_cheaper(&mut self) {
        self.remove_unprofitable_edges();
        for edge in self.dag.edge_ids() {
            if self.edges.contains(edge) && self.paths_with[edge.index()].iter().all(|at| self.outside[*at] > 0) {
                self.remove_edge(edge);
            }
        }
    }

    fn remove_unprofitable_edges(&mut self) {
        let mut cost = self.cost();
        while cost > 0.0 && self.steps < MAX_SEARCH_STEPS {
            let mut best: Option<(f64, Vec<DagEdgeId>)> = None;
            for edges in self.list_moves() {
                // The time of a round is quadratic in the size of the function, so a single round may take too many steps.
                if self.steps >= MAX_SEARCH_STEPS {
                    break;
                }
                let new = self.cost_without(&edges);
                if best.as_ref().is_none_or(|(least, _)| new < *least) {
                    best = Some((new, edges));
                }
            }
            match best {
                Some((new, edges)) if new < cost * (1.0 - MIN_COST_IMPROVEMENT_SHARE) => {
                    edges.iter().for_each(|e| self.remove_edge(*e));
                    cost = new;
                }
                _ => return,
            }
        }
    }

    pub fn into_edges_and_paths(self) -> (DagEdgeSet, Vec<KnownPath>) {
        (self.edges, self.paths)
    }

    /// Returns the edges with which unknown paths in the region may end.
    pub fn find_unclear_ends(&self) -> DagEdgeSet {
        let path_counts = self.path_counts();
        DagEdgeSet::from_fn(self.dag.edges().len(), |e| self.is_unclear(&path_counts, e))
    }

    fn is_end(&self, edge: DagEdgeId) -> bool {
        self.dag.edge(edge).to == self.dag.exit()
    }

    fn is_unclear(&self, path_counts: &[u64], edge: DagEdgeId) -> bool {
        self.is_end(edge) && self.edges.contains(edge) && path_counts[self.dag.edge(edge).from.index()] > self.ends[edge.index()]
    }

    /// Returns the moves to try, each a set of edges to remove.
    fn list_moves(&mut self) -> Vec<Vec<DagEdgeId>> {
        let inner = |e: &DagEdgeId| self.edges.contains(*e) && !self.is_end(*e);
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
        moves.extend(unclear.into_iter().filter_map(|end| self.edges_to_clear(end)));
        moves
    }

    /// Returns edges to remove so that no unknown path in the region ends with `end`, chosen greedily, or `None` if they are too many.
    fn edges_to_clear(&mut self, end: DagEdgeId) -> Option<Vec<DagEdgeId>> {
        const MAX_EDGES: usize = 32;
        if self.steps >= MAX_SEARCH_STEPS {
            return None;
        }
        let mut out = Vec::new();
        let found = loop {
            match self.find_edge_with_most_unknown(end) {
                None => break true,
                Some(_) if out.len() == MAX_EDGES => break false,
                Some(edge) => {
                    self.remove_edge(edge);
                    out.push(edge);
                }
            }
        };
        out.iter().rev().for_each(|e| self.restore_edge(*e));
        found.then_some(out)
    }

    fn find_edge_with_most_unknown(&mut self, end: DagEdgeId) -> Option<DagEdgeId> {
        let (dag, tail) = (self.dag, self.dag.edge(end).from);
        self.steps += 4 * dag.edges().len();
        let to = self.path_counts();
        if to[tail.index()] == self.ends[end.index()] {
            return None;
        }
        let mut from = vec![0u64; dag.node_count()];
        from[tail.index()] = 1;
        for &node in dag.order().iter().rev() {
            from[node.index()] += self.out_edges_in_region(node).map(|e| from[dag.edge(e).to.index()]).sum::<u64>();
        }
        let mut known = vec![0u64; dag.edges().len()];
        for &at in self.paths_with[end.index()].iter().filter(|at| self.outside[**at] == 0) {
            self.paths[at].edges.iter().for_each(|e| known[e.index()] += 1);
        }
        let unknown = |e: DagEdgeId| {
            let edge = dag.edge(e);
            if !self.edges.contains(e) || self.is_end(e) { 0 } else { to[edge.from.index()] * from[edge.to.index()] - known[e.index()] }
        };
        let worth = |e: &DagEdgeId| unknown(*e) as f64 / (self.flow[e.index()] + 1e-9);
        dag.edge_ids().filter(|e| unknown(*e) > 0).max_by(|a, b| worth(a).total_cmp(&worth(b)).then(b.cmp(a)))
    }

    fn out_edges_in_region(&self, node: Node) -> impl Iterator<Item = DagEdgeId> + '_ {
        self.dag.out(node).iter().copied().filter(|e| self.edges.contains(*e))
    }

    fn remove_edge(&mut self, edge: DagEdgeId) {
        self.edges.remove(edge);
        for at in self.paths_with[edge.index()].clone() {
            if self.outside[at] == 0 {
                self.add_or_remove_path(at, -1.0);
            }
            self.outside[at] += 1;
        }
    }

    fn restore_edge(&mut self, edge: DagEdgeId) {
        self.edges.insert(edge);
        for at in self.paths_with[edge.index()].clone() {
            self.outside[at] -= 1;
            if self.outside[at] == 0 {
                self.add_or_remove_path(at, 1.0);
            }
        }
    }

    /// Updates `flow` and `ends` when a path becomes part of the region (`sign` 1) or leaves it (`sign` -1).
    fn add_or_remove_path(&mut self, at: usize, sign: f64) {
        let path = &self.paths[at];
        self.steps += path.edges.len();
        path.edges.iter().for_each(|e| self.flow[e.index()] += sign * path.executions_of_own_edges() as f64);
        if let Some(end) = path.edges.last() {
            self.flow[end.index()] += sign * (path.executions - path.executions_of_own_edges()) as f64;
            let ends = &mut self.ends[end.index()];
            *ends = if sign > 0.0 { *ends + 1 } else { *ends - 1 };
        }
    }

    fn cost_without(&mut self, edges: &[DagEdgeId]) -> f64 {
        edges.iter().for_each(|e| self.remove_edge(*e));
        let cost = self.cost();
        edges.iter().rev().for_each(|e| self.restore_edge(*e));
        cost
    }

    pub fn node_count(&self) -> usize {
        let path_counts = self.path_counts();
        self.dag.order().iter().filter(|n| **n != self.dag.exit() && path_counts[n.index()] > 0).count()
    }

    pub fn cost(&mut self) -> f64 {
        self.steps += 3 * self.dag.edges().len() + self.paths.len();
        let detours: f64 =
            self.paths.iter().zip(&self.outside).filter(|(_, outside)| **outside > 0).map(|(path, _)| path.executions as f64).sum();
        let path_counts = self.path_counts();
        let mut needed = NodeSet::empty(self.dag.node_count());
        let (mut lookups, mut kept) = (0.0, 0.0);
        for &node in self.dag.order().iter().rev().filter(|n| **n != self.dag.exit() && path_counts[n.index()] > 0) {
            for &edge in self.dag.out(node) {
                let is_unclear = self.is_unclear(&path_counts, edge);
                if is_unclear {
                    lookups += self.flow[edge.index()];
                }
                if is_unclear || !self.edges.contains(edge) || needed.contains(self.dag.edge(edge).to) {
                    needed.insert(node);
                }
            }
            let into =
                || self.dag.incoming(node).iter().filter(|e| self.edges.contains(**e) && path_counts[self.dag.edge(**e).from.index()] > 0);
            if needed.contains(node) && into().count() > 1 {
                kept += into().map(|e| self.flow[e.index()]).sum::<f64>();
            }
        }
        self.prices.execution_cost(detours, lookups, kept)
    }

    /// Returns the number of paths in the region from the entry to each node.
    fn path_counts(&self) -> Vec<u64> {
        let mut path_counts = vec![0u64; self.dag.node_count()];
        path_counts[self.dag.entry().index()] = 1;
        for &node in self.dag.order() {
            for edge in self.out_edges_in_region(node) {
                path_counts[self.dag.edge(edge).to.index()] += path_counts[node.index()];
            }
        }
        path_counts
    }
}
