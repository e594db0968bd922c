//! Ball-Larus numbering: each of a DAG's N paths has a number from 0 to N - 1, the sum of its edges' values.
//!
//! Source: Ball and Larus (1996), figure 5; Vaswani's thesis, figure 3.1 (`computeBLIncrements`) and lemma 3.2.1. Linear in the number of
//! edges. Numbers are below 2^63, so that they and all partial sums fit into a signed word.

use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// A graph has too many paths to number them: at least 2^63 paths begin at the node with this number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message_with_node_name(.0))]
pub struct TooManyPaths(pub u32);

impl TooManyPaths {
    /// Returns the message, with a name for the node instead of its number.
    pub fn message_with_node_name(&self, node: &dyn std::fmt::Display) -> String {
        format!("at least 2^63 paths begin at node {node}. Cut more edges of the graph")
    }
}

/// A value for each edge of a DAG and the number of paths from each node to the exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    values: Vec<i64>,
    paths_from: Vec<u64>,
    paths: u64,
}

impl Numbering {
    /// Numbers all paths (`computeBLIncrements`). An edge's value is the number of paths through its tail's earlier out-edges.
    pub fn ball_larus(dag: &Dag) -> Result<Numbering, TooManyPaths> {
        let mut values = vec![0; dag.edges().len()];
        let mut paths_from = vec![0u64; dag.node_count()];
        paths_from[dag.exit().index()] = 1;
        for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
            let mut sum = 0u64;
            for &edge in dag.out(node) {
                values[edge.index()] = sum as i64;
                sum =
                    sum.checked_add(paths_from[dag.edge(edge).to.index()]).filter(|s| *s <= i64::MAX as u64).ok_or(TooManyPaths(node.0))?;
            }
            paths_from[node.index()] = sum;
        }
        let paths = paths_from[dag.entry().index()];
        Ok(Numbering { values, paths_from, paths })
    }

    /// Rebuilds a numbering from stored values. The error describes the first edge with a wrong value.
    pub fn from_values(dag: &Dag, values: &[i64]) -> Result<Numbering, String> {
        let numbering = Numbering::ball_larus(dag).map_err(|e| e.to_string())?;
        match dag.edge_ids().find(|e| values.get(e.index()) != Some(&numbering.values[e.index()])) {
            Some(bad) => Err(format!(
                "the value of edge {} is {:?}, which is not the number of paths through the edges before it",
                bad.0,
                values.get(bad.index())
            )),
            None => Ok(numbering),
        }
    }

    /// Returns the number of paths. They are numbered from 0.
    pub fn paths(&self) -> u64 {
        self.paths
    }

    /// Returns the number of paths from a node to the exit.
    pub fn paths_from(&self, node: Node) -> u64 {
        self.paths_from[node.index()]
    }

    /// Returns the value of each edge.
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    /// Returns the number of a path (`computePathIdentifier`, figure 3.3).
    pub fn id(&self, path: &[DagEdgeId]) -> u64 {
        path.iter().map(|e| self.values[e.index()]).sum::<i64>() as u64
    }

    /// Returns the path with the given number, or `None` if the number is too large. At each node, the path takes the out-edge with the
    /// greatest value that does not exceed the remaining number.
    pub fn path(&self, dag: &Dag, id: u64) -> Option<Vec<DagEdgeId>> {
        if id >= self.paths {
            return None;
        }
        let mut left = id as i64;
        let mut node = dag.entry();
        let mut path = Vec::new();
        while node != dag.exit() {
            // The values of the out-edges are in ascending order.
            let at = dag.out(node).partition_point(|e| self.values[e.index()] <= left);
            let edge = dag.out(node)[at - 1];
            left -= self.values[edge.index()];
            node = dag.edge(edge).to;
            path.push(edge);
        }
        Some(path)
    }
}
