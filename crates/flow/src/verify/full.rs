//! Verifier of numberings of all paths: a proof in one pass, however many there are.
//!
//! Behind each node the numbers of the paths to the exit must be 0 to n - 1, each once. That is so at the exit, and at
//! a node whose out-edges' values are the sums of the counts behind the edges before, in some order: the numbers behind
//! edge `e` are then the interval from its value on, and the intervals lie side by side. Increments make the same sums
//! if they differ from the values by a difference of potentials of the ends, which is zero from entry to exit.

use crate::dag::{Dag, DagEdgeId};

/// What is wrong with a numbering of all paths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Two paths have one number, or there is a hole.
    #[error("the numbers of the paths behind node {0} do not lie side by side")]
    Numbers(u32),
    /// Paths are too many for a word.
    #[error("there are too many paths behind node {0}")]
    TooMany(u32),
    /// Increments sum up to something else.
    #[error("the increments on the path through edge {0} do not add up to the numbers")]
    Increments(u32),
}

/// Proves that the values number all paths of a graph from 0 on, and that the increments make the same sums. Gives the number of paths.
///
/// # Errors
/// They do not.
pub fn verify_full(dag: &Dag, values: &[i64], increments: &[i64]) -> Result<u64, Fault> {
    let mut behind = vec![0u64; dag.node_count()];
    behind[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let mut out: Vec<(i64, u64)> = dag.out(node).iter().map(|e| (values[e.index()], behind[dag.edge(*e).to.index()])).collect();
        out.sort_unstable();
        let mut sum = 0u64;
        for (value, paths) in out {
            if u64::try_from(value) != Ok(sum) {
                return Err(Fault::Numbers(node.0));
            }
            sum = sum.checked_add(paths).filter(|s| i64::try_from(*s).is_ok()).ok_or(Fault::TooMany(node.0))?;
        }
        behind[node.index()] = sum;
    }
    sums_are_equal(dag, values, increments)?;
    Ok(behind[dag.entry().index()])
}

/// Whether the increments make the sums that the values make on every path.
fn sums_are_equal(dag: &Dag, values: &[i64], increments: &[i64]) -> Result<(), Fault> {
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
