//! What a copy costs that profiles the paths of some ends of a procedure, quickly enough to ask it many thousand times.
//!
//! The labels that [`Part::by_ends`](trodden_flow::part::Part::by_ends) places stand on the chords of a spanning tree of greatest
//! weight over the nodes that lead to the interesting ends, so their cost is the weight of the edges that are not in the
//! tree; counts add the weight of the ends. That is exact but for chords whose increment happens to be zero. The cost
//! never falls when ends are added. O(edges) for a set that was not asked before.

use super::Procedure;
use std::collections::{BTreeSet, HashMap};
use trodden_flow::dag::{DagEdge, DagEdgeId};
use trodden_flow::graph::Node;
use trodden_flow::part::{Ends, Measure};
use trodden_flow::placement::DisjointSets;

/// Clusters of ends that are kept for each procedure.
const MOST_CLUSTERS: usize = 64;
/// Words of all nodes' sets of ends, up to which the heaviest clusters are sought among all nodes (32 MiB).
const MOST_CLUSTER_WORDS: usize = 1 << 22;

/// A set of a procedure's ends, by place among them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndSet(Vec<u64>);

/// For each procedure, the ends of each copy.
pub type EndPartition = Vec<Vec<EndSet>>;

impl EndSet {
    /// The empty set.
    pub fn none(ends: usize) -> EndSet {
        EndSet(vec![0; ends.div_ceil(64)])
    }

    /// All of them.
    pub fn all(ends: usize) -> EndSet {
        let mut set = EndSet::none(ends);
        (0..ends).for_each(|at| set.insert(at));
        set
    }

    /// Adds one.
    pub fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Whether it is among them.
    pub fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// Those in either.
    pub fn with(&self, other: &EndSet) -> EndSet {
        EndSet(self.0.iter().zip(&other.0).map(|(a, b)| a | b).collect())
    }

    /// Those in both.
    pub fn within(&self, other: &EndSet) -> EndSet {
        EndSet(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// Those not in the other.
    pub fn without(&self, other: &EndSet) -> EndSet {
        EndSet(self.0.iter().zip(&other.0).map(|(a, b)| a & !b).collect())
    }

    /// The places, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|at| self.has(*at))
    }
}

/// Where an edge leads, and which end it is, if one.
type Successor = (Node, Option<usize>);

/// A procedure while sets of its ends are weighed.
pub struct Weigher {
    /// Its ends.
    pub ends: Vec<DagEdgeId>,
    /// Executions of each end.
    pub weights: Vec<u64>,
    /// Ends from the most frequent to the least.
    pub by_weight: Vec<usize>,
    /// Ends in the order of the procedure.
    pub by_place: Vec<usize>,
    /// Sets of ends behind one node, by weight.
    pub clusters: Vec<EndSet>,
    entry: Node,
    /// Undecided nodes, last first, with their edges.
    order: Vec<(Node, Vec<Successor>)>,
    /// Edges between undecided nodes (and ends, where those cost as labels do), by falling weight.
    sorted: Vec<(Node, Node, u64, Option<usize>)>,
    known: HashMap<EndSet, u64>,
    sets: DisjointSets,
    leads: Vec<bool>,
    measure: Measure,
    /// Edges looked at so far: what the weighing costs.
    pub work: u64,
}

impl Weigher {
    /// Prepares a procedure.
    pub fn new(procedure: &Procedure, measure: Measure) -> Weigher {
        let (dag, found) = (&procedure.dag, Ends::from_dag(&procedure.dag));
        let ends = found.edges().to_vec();
        let place: HashMap<DagEdgeId, usize> = ends.iter().enumerate().map(|(at, e)| (*e, at)).collect();
        let weights: Vec<u64> = ends.iter().map(|e| procedure.frequencies[e.index()]).collect();
        let undecided = || dag.order().iter().copied().filter(|n| !found.is_decided(*n));
        let edges = |n: Node| dag.out(n).iter().map(|e| (dag.edge(*e).to, place.get(e).copied())).collect();
        let order: Vec<(Node, Vec<Successor>)> = undecided().map(|n| (n, edges(n))).collect();
        let mut sorted: Vec<_> =
            undecided().flat_map(|n| dag.out(n)).map(|e| (dag.edge(*e), procedure.frequencies[e.index()], place.get(e).copied())).collect();
        sorted.retain(|(_, _, end)| end.is_none() || measure == Measure::Labels);
        sorted.sort_by_key(|(_, weight, _)| std::cmp::Reverse(*weight));
        let head = |edge: DagEdge, end: Option<usize>| if end.is_some() { dag.exit() } else { edge.to };
        let mut by_weight: Vec<usize> = (0..ends.len()).collect();
        by_weight.sort_by_key(|at| std::cmp::Reverse(weights[*at]));
        let mut weigher = Weigher {
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

    /// Hits of a copy that profiles the paths of these ends.
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
        let cost = counts + self.labels(set);
        self.known.insert(set.clone(), cost);
        cost
    }

    /// A set of some ends.
    pub fn of_these(&self, ends: impl Iterator<Item = usize>) -> EndSet {
        let mut set = EndSet::none(self.ends.len());
        ends.for_each(|at| set.insert(at));
        set
    }

    /// Executions of the ends of a set.
    pub fn weight(&self, set: &EndSet) -> u64 {
        set.iter().map(|at| self.weights[at]).sum()
    }

    /// Weight of the edges outside the spanning tree.
    fn labels(&mut self, set: &EndSet) -> u64 {
        for (node, edges) in &self.order {
            self.leads[node.index()] = edges.iter().any(|(to, end)| end.map_or_else(|| self.leads[to.index()], |at| set.has(at)));
        }
        self.sets.clear();
        let mut cost = 0;
        for &(from, to, weight, end) in &self.sorted {
            if weight == 0 {
                break;
            }
            let live = end.map_or_else(|| self.leads[to.index()], |at| set.has(at));
            if live && !self.sets.join(from, to) {
                cost += weight;
            }
        }
        debug_assert!(self.leads[self.entry.index()]);
        cost
    }

    /// The ends behind each node, where those are several but not all: the heaviest such sets. Where there are so many
    /// nodes and ends that the sets of all nodes would take O(nodes x ends), those of some nodes all over the procedure.
    fn find_clusters(&self, nodes: usize) -> Vec<EndSet> {
        let is_large = self.order.len().saturating_mul(self.ends.len().div_ceil(64)) > MOST_CLUSTER_WORDS;
        let distinct = if is_large { self.some_sets(nodes) } else { self.all_sets(nodes) };
        let mut clusters: Vec<EndSet> = distinct.into_iter().filter(|s| s.iter().nth(1).is_some()).collect();
        clusters.sort_by_cached_key(|s| std::cmp::Reverse(self.weight(s)));
        clusters.truncate(MOST_CLUSTERS);
        clusters
    }

    /// The sets of ends behind all nodes. O(edges x ends / 64).
    fn all_sets(&self, nodes: usize) -> BTreeSet<EndSet> {
        let mut behind: Vec<Option<EndSet>> = vec![None; nodes];
        let mut distinct = BTreeSet::new();
        for (node, edges) in &self.order {
            let mut set = EndSet::none(self.ends.len());
            for (to, end) in edges {
                match (end, &behind[to.index()]) {
                    (Some(at), _) => set.insert(*at),
                    (None, Some(other)) => set = set.with(other),
                    (None, None) => {}
                }
            }
            distinct.insert(set.clone());
            behind[node.index()] = Some(set);
        }
        distinct
    }

    /// The sets of ends behind [`MOST_CLUSTERS`] nodes at equal distances in the procedure's order. O(edges) each.
    fn some_sets(&self, nodes: usize) -> BTreeSet<EndSet> {
        let mut place = vec![None; nodes];
        self.order.iter().enumerate().for_each(|(at, (node, _))| place[node.index()] = Some(at));
        let set_behind = |start: usize| {
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
        (0..self.order.len()).step_by(self.order.len().div_ceil(MOST_CLUSTERS)).map(set_behind).collect()
    }
}
