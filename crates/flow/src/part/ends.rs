//! Where a path's identity is decided: the edges behind which only one path leads to the exit.
//!
//! Every path takes exactly one such edge, its *end*. That is the earliest place where the path can be counted, and a
//! count is one memory access wherever it stands; so counts are made there (as [`crate::program`] does where it pays),
//! and two paths with different ends never need different sums. A copy that has no interest in any path of an end makes
//! no count there: this is what makes a partition by ends cheap.
//!
//! A call that might not come back is a branch (to the exit), so no such call stands behind an end. O(edges).

use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// The ends of a DAG's paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    edges: Vec<DagEdgeId>,
    decided: Vec<bool>,
}

impl Ends {
    /// Finds the ends.
    pub fn from_dag(dag: &Dag) -> Ends {
        // Paths to the exit, of which two are as good as many.
        let mut paths_to_exit = vec![0u8; dag.node_count()];
        paths_to_exit[dag.exit().index()] = 1;
        for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
            let sum: u32 = dag.out(node).iter().map(|e| u32::from(paths_to_exit[dag.edge(*e).to.index()])).sum();
            paths_to_exit[node.index()] = sum.min(2) as u8;
        }
        let mut decided: Vec<bool> = paths_to_exit.iter().map(|w| *w == 1).collect();
        // A function of one path is decided at its beginning: the edges out of the entry are ends all the same.
        decided[dag.entry().index()] = false;
        let is_end = |e: &DagEdgeId| decided[dag.edge(*e).to.index()] && !decided[dag.edge(*e).from.index()];
        let edges = dag.edge_ids().filter(is_end).collect();
        Ends { edges, decided }
    }

    /// The ends, in the order of their numbers.
    pub fn edges(&self) -> &[DagEdgeId] {
        &self.edges
    }

    /// Whether a path that has come to the node has passed its end.
    pub fn is_decided(&self, node: Node) -> bool {
        self.decided[node.index()]
    }
}
