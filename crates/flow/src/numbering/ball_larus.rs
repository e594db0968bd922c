//! Ball-Larus numbering: every path of a DAG gets a number from 0 to N-1, the sum of the values on its edges.
//!
//! Source: Ball and Larus (1996), figure 5; Vaswani's thesis, figure 3.1 (`computeBLIncrements`) and lemma 3.2.1. Linear in the number of
//! edges. Numbers stay below 2^63, so that they and every partial sum fit a signed word.

use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;

/// A graph with more paths than can be numbered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.with_name(.0))]
pub struct TooManyPaths(pub u32);

impl TooManyPaths {
    /// The message, with the given name for the node.
    pub fn with_name(&self, node: &dyn std::fmt::Display) -> String {
        format!("2^63 paths or more begin at node {node}: cut the graph further")
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
    /// Numbers all paths (`computeBLIncrements`): each edge's value is the number of paths through the out-edges before it.
    ///
    /// # Errors
    /// The node at which more than 2^63 - 1 paths begin.
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

    /// Rebuilds a numbering from stored values.
    ///
    /// # Errors
    /// The first edge whose value is not the number of paths through the out-edges before it.
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

    /// Number of paths. Their numbers are 0 to one less.
    pub fn paths(&self) -> u64 {
        self.paths
    }

    /// Number of paths from a node to the exit.
    pub fn paths_from(&self, node: Node) -> u64 {
        self.paths_from[node.index()]
    }

    /// The value of each edge.
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    /// The number of a path (`computePathIdentifier`, figure 3.3).
    pub fn id(&self, path: &[DagEdgeId]) -> u64 {
        path.iter().map(|e| self.values[e.index()]).sum::<i64>() as u64
    }

    /// The path with a given number, or `None` if there is none. At each node it takes the out-edge with the greatest value that does not
    /// exceed the rest of the number.
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
