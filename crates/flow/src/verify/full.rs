//! Verifies a numbering of all paths, in one pass.
//!
//! The paths from each node to the exit must have the numbers 0 to n - 1, each once. That holds at the exit, and at a node whose
//! out-edges, in some order, have the running sums of the path counts of the out-edges before them as values: then the numbers through
//! each edge form an interval, and the intervals are contiguous. Increments make the same sums if they differ from the values by a
//! difference of node potentials, with equal potentials at entry and exit.

use crate::dag::{Dag, DagEdgeId};

/// What is wrong with a numbering of all paths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Two paths have the same number, or a number is missing.
    #[error("the numbers of the paths from node {0} to the exit are not contiguous")]
    Numbers(u32),
    /// The number of paths does not fit a word.
    #[error("there are too many paths from node {0} to the exit")]
    TooMany(u32),
    /// The increments along a path do not sum to its number.
    #[error("the increments on the path through edge {0} do not add up to the numbers")]
    Increments(u32),
}

/// Proves that the values number all paths of a graph from 0 on, and that the increments have the same sums. Returns the number of paths.
///
/// # Errors
/// The first node or edge at which the proof fails.
pub fn verify_full(dag: &Dag, values: &[i64], increments: &[i64]) -> Result<u64, Fault> {
    let mut paths_from = vec![0u64; dag.node_count()];
    paths_from[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let mut out: Vec<(i64, u64)> = dag.out(node).iter().map(|e| (values[e.index()], paths_from[dag.edge(*e).to.index()])).collect();
        out.sort_unstable();
        let mut sum = 0u64;
        for (value, paths) in out {
            if u64::try_from(value) != Ok(sum) {
                return Err(Fault::Numbers(node.0));
            }
            sum = sum.checked_add(paths).filter(|s| i64::try_from(*s).is_ok()).ok_or(Fault::TooMany(node.0))?;
        }
        paths_from[node.index()] = sum;
    }
    check_sums(dag, values, increments)?;
    Ok(paths_from[dag.entry().index()])
}

/// Checks that the increments have the same sums as the values on every path.
fn check_sums(dag: &Dag, values: &[i64], increments: &[i64]) -> Result<(), Fault> {
    let ahead = |e: &DagEdgeId| values[e.index()].wrapping_sub(increments[e.index()]);
    let mut potential: Vec<Option<i64>> = vec![None; dag.node_count()];
    potential[dag.entry().index()] = Some(0);
    for &node in dag.order() {
        let Some(here) = potential[node.index()] else { continue };
        for edge in dag.out(node) {
            let there = here.wrapping_add(ahead(edge));
            if *potential[dag.edge(*edge).to.index()].get_or_insert(there) != there {
                return Err(Fault::Increments(edge.0));
            }
        }
    }
    match potential[dag.exit().index()] {
        Some(0) | None => Ok(()),
        Some(_) => Err(Fault::Increments(dag.incoming(dag.exit()).first().map_or(0, |e| e.0))),
    }
}
