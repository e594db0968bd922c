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
    pub(crate) fn from_increments(increments: Vec<i64>) -> Probes {
        Probes { increments }
    }

    /// Increments on chords of a maximum spanning tree under `weights` (one for each edge of the DAG; larger is executed more often).
    pub fn on_chords(dag: &Dag, values: &[i64], weights: &[f64]) -> Probes {
        let tree = maximum_spanning_tree(dag, weights);
        let potential = potentials(dag, values, &tree);
        let increments = dag
            .edge_ids()
            .map(|id| {
                let edge = dag.edge(id);
                let drop = potential[edge.to.index()].wrapping_sub(potential[edge.from.index()]);
                values[id.index()].wrapping_sub(drop)
            })
            .collect();
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

/// Kruskal's algorithm; the edge exit -> entry is in the tree from the start. Ties go to the lower edge number.
fn maximum_spanning_tree(dag: &Dag, weights: &[f64]) -> Vec<bool> {
    let mut sorted: Vec<DagEdgeId> = dag.edge_ids().collect();
    sorted.sort_by(|a, b| weights[b.index()].total_cmp(&weights[a.index()]).then(a.cmp(b)));
    let mut sets = DisjointSets::new(dag.node_count());
    sets.join(dag.exit(), dag.entry());
    let mut tree = vec![false; dag.edges().len()];
    for id in sorted {
        let edge = dag.edge(id);
        tree[id.index()] = sets.join(edge.from, edge.to);
    }
    tree
}

/// Potentials of the nodes, zero at entry and exit, such that each tree edge's value is the difference of its ends'.
fn potentials(dag: &Dag, values: &[i64], tree: &[bool]) -> Vec<i64> {
    let mut potential = vec![0i64; dag.node_count()];
    let mut seen = vec![false; dag.node_count()];
    let mut stack = vec![dag.entry(), dag.exit()];
    seen[dag.entry().index()] = true;
    seen[dag.exit().index()] = true;
    while let Some(node) = stack.pop() {
        let here = potential[node.index()];
        let forward = dag.out(node).iter().map(|&e| (e, dag.edge(e).to, values[e.index()]));
        let backward = dag.incoming(node).iter().map(|&e| (e, dag.edge(e).from, values[e.index()].wrapping_neg()));
        for (edge, other, step) in forward.chain(backward) {
            if tree[edge.index()] && !seen[other.index()] {
                seen[other.index()] = true;
                potential[other.index()] = here.wrapping_add(step);
                stack.push(other);
            }
        }
    }
    potential
}

/// Disjoint sets of nodes, with path halving.
pub(crate) struct DisjointSets {
    parent: Vec<u32>,
}

impl DisjointSets {
    /// Each node by itself.
    pub(crate) fn new(nodes: usize) -> DisjointSets {
        DisjointSets { parent: (0..nodes as u32).collect() }
    }

    fn root(&mut self, mut node: u32) -> u32 {
        while self.parent[node as usize] != node {
            let up = self.parent[self.parent[node as usize] as usize];
            self.parent[node as usize] = up;
            node = up;
        }
        node
    }

    /// Each node by itself again.
    pub(crate) fn clear(&mut self) {
        self.parent.iter_mut().zip(0..).for_each(|(p, n)| *p = n);
    }

    /// Joins the sets of two nodes; false if they were one already.
    pub(crate) fn join(&mut self, a: Node, b: Node) -> bool {
        let (a, b) = (self.root(a.0), self.root(b.0));
        self.parent[a as usize] = b;
        a != b
    }
}
