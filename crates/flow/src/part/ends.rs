//! Ends of paths: the edges after which only one path leads to the exit.
//!
//! Each path takes exactly one such edge, its *end*. This is the first edge on which the path can be counted, and later edges are not
//! cheaper, so paths are counted on their ends. Paths with different ends do not need different sums. A copy of the program that counts no
//! path with a certain end does not need a count there, so a partition by ends is cheap.
//!
//! A call that may not return is a branch to the exit, so no such call follows an end. O(edges).

use crate::dag::{Dag, DagEdgeId, Origin};
use crate::graph::{Node, NodeSet};

/// The ends of a DAG's paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEnds {
    edges: Vec<DagEdgeId>,
    /// Nodes that a path reaches only after its end.
    decided: NodeSet,
}

impl PathEnds {
    /// Finds the ends of the DAG's paths.
    pub fn from_dag(dag: &Dag) -> PathEnds {
        // Number of paths to the exit, saturating at 2.
        let mut paths_to_exit = vec![0u8; dag.node_count()];
        paths_to_exit[dag.exit().index()] = 1;
        for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
            let sum: u32 = dag.out(node).iter().map(|e| u32::from(paths_to_exit[dag.edge(*e).to.index()])).sum();
            paths_to_exit[node.index()] = sum.min(2) as u8;
        }
        let decided = NodeSet::from_fn(dag.node_count(), |node| paths_to_exit[node.index()] == 1);
        PathEnds::from_nodes_after_end(dag, decided)
    }

    /// Finds the ends if no path may be counted on the dummy edge where it begins. Nodes where paths begin are then undecided.
    pub fn without_dummy_entry_edges(dag: &Dag) -> PathEnds {
        let mut decided = PathEnds::from_dag(dag).decided;
        // The exit stays decided even if a cut edge leads to it, so that a path begins there.
        for &node in dag.order().iter().rev().filter(|node| **node != dag.exit()) {
            let begins = dag.incoming(node).iter().any(|e| matches!(dag.edge(*e).origin, Origin::Enter(_)));
            if begins || !dag.out(node).iter().all(|e| decided.contains(dag.edge(*e).to)) {
                decided.remove(node);
            }
        }
        PathEnds::from_nodes_after_end(dag, decided)
    }

    /// Returns the edges from undecided to decided nodes.
    fn from_nodes_after_end(dag: &Dag, mut decided: NodeSet) -> PathEnds {
        // In a function with a single path, the out-edge of the entry is the end.
        decided.remove(dag.entry());
        let is_end = |e: &DagEdgeId| decided.contains(dag.edge(*e).to) && !decided.contains(dag.edge(*e).from);
        let edges = dag.edge_ids().filter(is_end).collect();
        PathEnds { edges, decided }
    }

    /// Returns the ends, ordered by number.
    pub fn edges(&self) -> &[DagEdgeId] {
        &self.edges
    }

    /// Returns whether an edge is an end.
    pub fn contains(&self, edge: DagEdgeId) -> bool {
        self.edges.binary_search(&edge).is_ok()
    }

    /// Returns whether paths have passed their end when they reach this node.
    pub fn is_after_path_end(&self, node: Node) -> bool {
        self.decided.contains(node)
    }
}
