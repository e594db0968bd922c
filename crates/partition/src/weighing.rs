//! The cost of profiling the paths of some ends of a procedure, computed fast enough for a search.
//!
//! [`Part::counting_paths_with_ends`](trodden_flow::part::Part::counting_paths_with_ends) places labels on the chords of a maximum spanning
//! tree over the nodes that lead to the interesting ends, so they cost the weight of the edges outside the tree; counters add the weight of
//! the ends. This is exact except for chords whose increment happens to be zero. The cost never falls when ends are added. O(edges) for
//! each new set.

use super::Procedure;
use std::collections::{BTreeSet, HashMap};
use trodden_flow::dag::{DagEdge, DagEdgeId};
use trodden_flow::graph::Node;
use trodden_flow::part::{Measure, PathEnds};
use trodden_flow::placement::DisjointSets;

const MAX_END_CLUSTERS: usize = 64;
/// Maximum size in words of 8 bytes (32 MiB) of the sets of ends that are reachable from each node. If the sets are larger, only some nodes
/// are considered for clusters.
const MAX_CLUSTER_WORDS: usize = 1 << 22;

/// A set of ends of a procedure, by index into [`EndSetWeigher::ends`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndSet(Vec<u64>);

/// For each procedure and each copy, the set of the procedure's ends that the copy counts.
pub type EndPartition = Vec<Vec<EndSet>>;

impl EndSet {
    pub fn none(ends: usize) -> EndSet {
        EndSet(vec![0; ends.div_ceil(64)])
    }

    pub fn all(ends: usize) -> EndSet {
        let mut set = EndSet::none(ends);
        (0..ends).for_each(|at| set.insert(at));
        set
    }

    pub fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub fn contains(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    pub fn union(&self, other: &EndSet) -> EndSet {
        EndSet(self.0.iter().zip(&other.0).map(|(a, b)| a | b).collect())
    }

    pub fn intersection(&self, other: &EndSet) -> EndSet {
        EndSet(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    pub fn difference(&self, other: &EndSet) -> EndSet {
        EndSet(self.0.iter().zip(&other.0).map(|(a, b)| a & !b).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|at| self.contains(*at))
    }
}

/// The target of an edge and, if the edge is an end, the index of the end.
type EdgeHead = (Node, Option<usize>);

/// Computes the costs of sets of ends of one procedure, and caches them.
pub struct EndSetWeigher {
    /// The procedure's ends.
    pub ends: Vec<DagEdgeId>,
    /// Number of executions of each end.
    pub weights: Vec<u64>,
    /// Indices of the ends, by descending frequency.
    pub by_weight: Vec<usize>,
    /// Indices of the ends, in topological order.
    pub by_place: Vec<usize>,
    /// Sets of ends, each of which consists of the ends that are reachable from one node, by descending weight.
    pub clusters: Vec<EndSet>,
    entry: Node,
    /// Nodes that paths reach before their end, in reverse topological order, and the edges out of each.
    order: Vec<(Node, Vec<EdgeHead>)>,
    /// Edges between these nodes, by descending weight. Ends are included if labels on them have a cost.
    sorted: Vec<(Node, Node, u64, Option<usize>)>,
    known: HashMap<EndSet, u64>,
    sets: DisjointSets,
    leads: Vec<bool>,
    measure: Measure,
    /// Work done so far: the number of examined edges, plus 50 for each computed cost.
    pub work: u64,
}

impl EndSetWeigher {
    /// Creates a weigher for a procedure.
    pub fn new(procedure: &Procedure, measure: Measure) -> EndSetWeigher {
        let (dag, found) = (&procedure.dag, PathEnds::from_dag(&procedure.dag));
        let ends = found.edges().to_vec();
        let place: HashMap<DagEdgeId, usize> = ends.iter().enumerate().map(|(at, e)| (*e, at)).collect();
        let weights: Vec<u64> = ends.iter().map(|e| procedure.frequencies[e.index()]).collect();
        let undecided = || dag.order().iter().copied().filter(|n| !found.is_after_path_end(*n));
        let edges = |n: Node| dag.out(n).iter().map(|e| (dag.edge(*e).to, place.get(e).copied())).collect();
        let order: Vec<(Node, Vec<EdgeHead>)> = undecided().map(|n| (n, edges(n))).collect();
        let mut sorted: Vec<_> =
            undecided().flat_map(|n| dag.out(n)).map(|e| (dag.edge(*e), procedure.frequencies[e.index()], place.get(e).copied())).collect();
        sorted.retain(|(_, _, end)| end.is_none() || measure == Measure::Labels);
        sorted.sort_by_key(|(_, weight, _)| std::cmp::Reverse(*weight));
        let head = |edge: DagEdge, end: Option<usize>| if end.is_some() { dag.exit() } else { edge.to };
        let mut by_weight: Vec<usize> = (0..ends.len()).collect();
        by_weight.sort_by_key(|at| std::cmp::Reverse(weights[*at]));
        let mut weigher = EndSetWeigher {
            by_place: order.iter().flat_map(|(_, edges)| edges.iter().filter_map(|e| e.1)).collect(),
            sorted: sorted.into_iter().map(|(edge, weight, end)| (edge.from, head(edge, end), weight, end)).collect(),
            order: order.into_iter().rev().collect(),
            clusters: Vec::new(),
            entry: dag.entry(),
            known: HashMap::new(),
            sets: DisjointSets::new(dag.node_count()),
            leads: vec![false; dag.node_count()],
            ends,
            weights,
            by_weight,
            measure,
            work: 0,
        };
        weigher.clusters = weigher.find_clusters(dag.node_count());
        weigher
    }

    /// Returns how often probes are executed in a copy that profiles the paths with these ends.
    pub fn cost(&mut self, set: &EndSet) -> u64 {
        if set.is_empty() {
            return 0;
        }
        if let Some(known) = self.known.get(set) {
            return *known;
        }
        self.work += self.sorted.len() as u64 + 50;
        let counts: u64 = match self.measure {
            Measure::All => set.iter().map(|at| self.weights[at]).sum(),
            Measure::Labels => 0,
        };
        let cost = counts + self.label_cost(set);
        self.known.insert(set.clone(), cost);
        cost
    }

    /// Returns the set of the ends with these indices.
    pub fn set_of(&self, ends: impl Iterator<Item = usize>) -> EndSet {
        let mut set = EndSet::none(self.ends.len());
        ends.for_each(|at| set.insert(at));
        set
    }

    /// Returns the total number of executions of a set's ends.
    pub fn weight(&self, set: &EndSet) -> u64 {
        set.iter().map(|at| self.weights[at]).sum()
    }

    /// Returns the cost of the labels that distinguish the paths with these ends: the weight of the edges outside a maximum spanning tree.
    fn label_cost(&mut self, set: &EndSet) -> u64 {
        for (node, edges) in &self.order {
            self.leads[node.index()] = edges.iter().any(|(to, end)| end.map_or_else(|| self.leads[to.index()], |at| set.contains(at)));
        }
        self.sets.clear();
        let mut cost = 0;
        for &(from, to, weight, end) in &self.sorted {
            if weight == 0 {
                break;
            }
            let live = end.map_or_else(|| self.leads[to.index()], |at| set.contains(at));
            if live && !self.sets.join(from, to) {
                cost += weight;
            }
        }
        debug_assert!(self.leads[self.entry.index()]);
        cost
    }

    /// Returns the heaviest sets of ends that are reachable from one node. If the sets of all nodes would take too much memory, only a
    /// sample of the nodes is considered.
    fn find_clusters(&self, nodes: usize) -> Vec<EndSet> {
        let is_large = self.order.len().saturating_mul(self.ends.len().div_ceil(64)) > MAX_CLUSTER_WORDS;
        let distinct = if is_large { self.sampled_reachable_sets(nodes) } else { self.all_reachable_sets(nodes) };
        let mut clusters: Vec<EndSet> = distinct.into_iter().filter(|s| s.iter().nth(1).is_some()).collect();
        clusters.sort_by_cached_key(|s| std::cmp::Reverse(self.weight(s)));
        clusters.truncate(MAX_END_CLUSTERS);
        clusters
    }

    /// Returns the distinct sets of ends that are reachable from a node, for all nodes. O(edges x ends / 64).
    fn all_reachable_sets(&self, nodes: usize) -> BTreeSet<EndSet> {
        let mut reachable: Vec<Option<EndSet>> = vec![None; nodes];
        let mut distinct = BTreeSet::new();
        for (node, edges) in &self.order {
            let mut set = EndSet::none(self.ends.len());
            for (to, end) in edges {
                match (end, &reachable[to.index()]) {
                    (Some(at), _) => set.insert(*at),
                    (None, Some(other)) => set = set.union(other),
                    (None, None) => {}
                }
            }
            distinct.insert(set.clone());
            reachable[node.index()] = Some(set);
        }
        distinct
    }

    /// Returns the distinct sets of ends that are reachable from a node, for at most [`MAX_END_CLUSTERS`] nodes, evenly spaced in
    /// topological order. O(edges) each.
    fn sampled_reachable_sets(&self, nodes: usize) -> BTreeSet<EndSet> {
        let mut place = vec![None; nodes];
        self.order.iter().enumerate().for_each(|(at, (node, _))| place[node.index()] = Some(at));
        let reachable_from = |start: usize| {
            let mut set = EndSet::none(self.ends.len());
            let mut seen = vec![false; self.order.len()];
            let mut stack = vec![start];
            while let Some(at) = stack.pop() {
                if std::mem::replace(&mut seen[at], true) {
                    continue;
                }
                for (to, end) in &self.order[at].1 {
                    match end {
                        Some(end) => set.insert(*end),
                        None => stack.extend(place[to.index()]),
                    }
                }
            }
            set
        };
        (0..self.order.len()).step_by(self.order.len().div_ceil(MAX_END_CLUSTERS)).map(reachable_from).collect()
    }
}
