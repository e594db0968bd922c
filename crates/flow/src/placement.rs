//! Event counting: the same path sums with increments on the chords of a spanning tree only.
//!
//! Source: Ball, "Efficiently counting program events with support for on-line queries" (TOPLAS 1994); Ball and Larus (1996),
//! section 3.3. Take a spanning tree of the DAG with the edge exit -> entry added and always in the tree. Give each node the
//! potential that makes every tree edge's value a difference of potentials; what a chord's value has beyond that difference is
//! its increment. Along any path the potentials cancel, since entry and exit have the same. A maximum-weight tree leaves the chords
//! where they are executed least. O(E log E).

use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// An increment for each edge of a DAG; zero wherever no probe is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    increments: Vec<i64>,
}

impl Probes {
    /// Increments equal to the values: a probe wherever the value is not zero.
    pub fn direct(values: &[i64]) -> Probes {
        Probes { increments: values.to_vec() }
    }

    /// These increments, by edge.
    pub fn from_increments(increments: Vec<i64>) -> Probes {
        Probes { increments }
    }

    /// Increments on chords of a maximum spanning tree under `weights` (one for each edge of the DAG; larger is executed more often).
    pub fn on_chords(dag: &Dag, values: &[i64], weights: &[f64]) -> Probes {
        // Ties go to the lower edge number.
        let mut heaviest_first: Vec<DagEdgeId> = dag.edge_ids().collect();
        heaviest_first.sort_by(|a, b| weights[b.index()].total_cmp(&weights[a.index()]).then(a.cmp(b)));
        let (increments, _) = on_chords(dag, &heaviest_first, values, |id| dag.edge(id).to, true);
        Probes { increments }
    }

    /// The increment of an edge.
    pub fn increment(&self, edge: DagEdgeId) -> i64 {
        self.increments[edge.index()]
    }

    /// All increments, by edge.
    pub fn increments(&self) -> &[i64] {
        &self.increments
    }

    /// Number of edges with an increment other than zero.
    pub fn count(&self) -> usize {
        self.increments.iter().filter(|i| **i != 0).count()
    }
}

/// The same sums on the chords of the spanning tree that Kruskal's algorithm makes of edges in this order, each of which leads to its
/// `head`; and the constant that all sums lack. Other edges keep what they have. If the tree is `closed`, the edge exit -> entry is in it
/// from the start, and no sum lacks anything.
pub(crate) fn on_chords(dag: &Dag, edges: &[DagEdgeId], values: &[i64], head: impl Fn(DagEdgeId) -> Node, closed: bool) -> (Vec<i64>, i64) {
    let (mut sets, mut stack) = (DisjointSets::new(dag.node_count()), vec![dag.entry()]);
    if closed {
        sets.join(dag.exit(), dag.entry());
        stack.push(dag.exit());
    }
    let mut tree: Vec<Vec<(Node, i64)>> = vec![Vec::new(); dag.node_count()];
    for &edge in edges {
        let (from, to, value) = (dag.edge(edge).from, head(edge), values[edge.index()]);
        if sets.join(from, to) {
            tree[from.index()].push((to, value));
            tree[to.index()].push((from, value.wrapping_neg()));
        }
    }
    // Each tree edge's value is the difference of the potentials of its ends.
    let mut potential: Vec<Option<i64>> = vec![None; dag.node_count()];
    stack.iter().for_each(|n| potential[n.index()] = Some(0));
    while let Some(node) = stack.pop() {
        let here = potential[node.index()].unwrap_or(0);
        for &(other, step) in &tree[node.index()] {
            if potential[other.index()].is_none() {
                potential[other.index()] = Some(here.wrapping_add(step));
                stack.push(other);
            }
        }
    }
    let mut increments = values.to_vec();
    let height = |n: Node| potential[n.index()].unwrap_or(0);
    for &edge in edges {
        let drop = height(head(edge)).wrapping_sub(height(dag.edge(edge).from));
        increments[edge.index()] = values[edge.index()].wrapping_sub(drop);
    }
    (increments, height(dag.exit()))
}

/// Disjoint sets of nodes, with path halving.
pub struct DisjointSets {
    parent: Vec<u32>,
}

impl DisjointSets {
    /// Each node by itself.
    pub fn new(nodes: usize) -> DisjointSets {
        DisjointSets { parent: (0..nodes as u32).collect() }
    }

    /// The node that stands for a node's set.
    pub fn root(&mut self, mut node: u32) -> u32 {
        while self.parent[node as usize] != node {
            let up = self.parent[self.parent[node as usize] as usize];
            self.parent[node as usize] = up;
            node = up;
        }
        node
    }

    /// Each node by itself again.
    pub fn clear(&mut self) {
        self.parent.iter_mut().zip(0..).for_each(|(p, n)| *p = n);
    }

    /// Joins the sets of two nodes; false if they were one already.
    pub fn join(&mut self, a: Node, b: Node) -> bool {
        let (a, b) = (self.root(a.0), self.root(b.0));
        self.parent[a as usize] = b;
        a != b
    }
}
