//! Verifies a numbering of all paths, in one pass.
//!
//! The n paths from each node to the exit must have the numbers 0 to n - 1, each once. The exit has one path, with number 0. At any other
//! node, the out-edges are sorted by value. The value of each must be the number of paths through the out-edges before it. The numbers of
//! the paths through each edge then form an interval, and the intervals are contiguous.
//!
//! The increments have the same sum as the values on every path if each increment differs from the edge's value by the difference between
//! the potentials of the edge's nodes, where entry and exit have the same potential.

use crate::dag::{Dag, DagEdgeId};

/// A fault of a numbering of all paths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberingFault {
    /// Two paths have the same number, or a number is missing.
    #[error("the numbers of the paths from node {0} to the exit are not contiguous, or not unique")]
    Numbers(u32),
    /// The number of paths does not fit into 63 bits.
    #[error("there are too many paths from node {0} to the exit to number them")]
    TooMany(u32),
    /// The increments along a path do not sum to its number.
    #[error("the increments of the path register along a path through edge {0} do not sum to the path's number")]
    Increments(u32),
}

/// Verifies that the values number all paths from 0 on, and that increments have the same sums. Returns the number of paths.
pub fn verify_complete_numbering(dag: &Dag, values: &[i64], increments: &[i64]) -> Result<u64, NumberingFault> {
    let mut paths_from = vec![0u64; dag.node_count()];
    paths_from[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let mut out: Vec<(i64, u64)> = dag.out(node).iter().map(|e| (values[e.index()], paths_from[dag.edge(*e).to.index()])).collect();
        out.sort_unstable();
        let mut sum = 0u64;
        for (value, paths) in out {
            if u64::try_from(value) != Ok(sum) {
                return Err(NumberingFault::Numbers(node.0));
            }
            sum = sum.checked_add(paths).filter(|s| i64::try_from(*s).is_ok()).ok_or(NumberingFault::TooMany(node.0))?;
        }
        paths_from[node.index()] = sum;
    }
    check_sums(dag, values, increments)?;
    Ok(paths_from[dag.entry().index()])
}

/// Checks that the increments have the same sums as the values on every path.
fn check_sums(dag: &Dag, values: &[i64], increments: &[i64]) -> Result<(), NumberingFault> {
    let ahead = |e: &DagEdgeId| values[e.index()].wrapping_sub(increments[e.index()]);
    let mut potential: Vec<Option<i64>> = vec![None; dag.node_count()];
    potential[dag.entry().index()] = Some(0);
    for &node in dag.order() {
        let Some(here) = potential[node.index()] else { continue };
        for edge in dag.out(node) {
            let there = here.wrapping_add(ahead(edge));
            if *potential[dag.edge(*edge).to.index()].get_or_insert(there) != there {
                return Err(NumberingFault::Increments(edge.0));
            }
        }
    }
    match potential[dag.exit().index()] {
        Some(0) | None => Ok(()),
        Some(_) => Err(NumberingFault::Increments(dag.incoming(dag.exit()).first().map_or(0, |e| e.0))),
    }
}
