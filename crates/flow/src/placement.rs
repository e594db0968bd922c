//! Event counting: moves increments to the chords of a spanning tree without changing the sums of paths.
//!
//! Source: Ball, "Efficiently counting program events with support for on-line queries" (TOPLAS 1994); Ball and Larus (1996), section 3.3.
//! The spanning tree spans the DAG and an edge from exit to entry, which is always in the tree. Each node gets a potential such that the
//! value of each tree edge is the difference between the potentials of its ends. A chord's increment is its value minus that difference.
//! Along a path, the potentials cancel, because entry and exit have the same potential. In a maximum spanning tree, the chords are rarely
//! executed edges. O(E log E).

use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// The increment of each edge of a DAG, which is zero if the edge needs no probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    increments: Vec<i64>,
}

impl Probes {
    /// Places a probe with the edge's value on each edge with a nonzero value.
    pub fn direct(values: &[i64]) -> Probes {
        Probes { increments: values.to_vec() }
    }

    /// Creates probes with the given increments, by edge.
    pub fn from_increments(increments: Vec<i64>) -> Probes {
        Probes { increments }
    }

    /// Places probes on the chords of a maximum spanning tree. `weights` has an element for each edge of the DAG, its frequency or cost.
    pub fn on_chords(dag: &Dag, values: &[i64], weights: &[f64]) -> Probes {
        // Of edges with equal weight, the one with the lower number is used.
        let mut heaviest_first: Vec<DagEdgeId> = dag.edge_ids().collect();
        heaviest_first.sort_by(|a, b| weights[b.index()].total_cmp(&weights[a.index()]).then(a.cmp(b)));
        let (increments, _) = move_to_chords(dag, &heaviest_first, values, |id| dag.edge(id).to, true);
        Probes { increments }
    }

    /// Returns the increment of an edge.
    pub fn increment(&self, edge: DagEdgeId) -> i64 {
        self.increments[edge.index()]
    }

    /// Returns all increments, by edge.
    pub fn increments(&self) -> &[i64] {
        &self.increments
    }

    /// Returns the number of edges with a nonzero increment.
    pub fn count(&self) -> usize {
        self.increments.iter().filter(|i| **i != 0).count()
    }
}

/// Moves values to the chords of the spanning tree that Kruskal's algorithm builds from `edges`, in this order. `head` returns an edge's
/// head. Returns the increments, and the difference between a path's values and its increments, which is the same for all paths. Edges that
/// are not in `edges` keep their values. If `closed`, the edge exit -> entry is in the tree from the start, and the difference is 0.
pub(crate) fn move_to_chords(
    dag: &Dag,
    edges: &[DagEdgeId],
    values: &[i64],
    head: impl Fn(DagEdgeId) -> Node,
    closed: bool,
) -> (Vec<i64>, i64) {
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
    // The value of each tree edge is the difference of its ends' potentials.
    let mut potential: Vec<Option<i64>> = vec![None; dag.node_count()];
    stack.iter().for_each(|n| potential[n.index()] = Some(0));
    while let Some(node) = stack.pop() {
        let own = potential[node.index()].unwrap_or(0);
        for &(other, step) in &tree[node.index()] {
            if potential[other.index()].is_none() {
                potential[other.index()] = Some(own.wrapping_add(step));
                stack.push(other);
            }
        }
    }
    let mut increments = values.to_vec();
    let potential = |n: Node| potential[n.index()].unwrap_or(0);
    for &edge in edges {
        let difference = potential(head(edge)).wrapping_sub(potential(dag.edge(edge).from));
        increments[edge.index()] = values[edge.index()].wrapping_sub(difference);
    }
    (increments, potential(dag.exit()))
}

/// Disjoint sets of nodes (union-find with path halving).
pub struct DisjointSets {
    parent: Vec<u32>,
}

impl DisjointSets {
    /// Creates a set for each node.
    pub fn new(nodes: usize) -> DisjointSets {
        DisjointSets { parent: (0..nodes as u32).collect() }
    }

    /// Returns the representative of a node's set.
    pub fn root(&mut self, mut node: u32) -> u32 {
        while self.parent[node as usize] != node {
            let up = self.parent[self.parent[node as usize] as usize];
            self.parent[node as usize] = up;
            node = up;
        }
        node
    }

    /// Splits all sets, so that each node is in a separate set again.
    pub fn clear(&mut self) {
        self.parent.iter_mut().zip(0..).for_each(|(p, n)| *p = n);
    }

    /// Merges the sets of two nodes. Returns false if the nodes were in the same set.
    pub fn join(&mut self, a: Node, b: Node) -> bool {
        let (a, b) = (self.root(a.0), self.root(b.0));
        self.parent[a as usize] = b;
        a != b
    }
}
