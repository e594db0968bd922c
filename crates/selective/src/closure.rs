//! Numberings of the closure of a set of interesting edges with one register: SPP, its repair, PSPP, and compact
//! numbers for pertinent paths.
//!
//! Source: Afraz, Saha and Kanade, "P3: partitioned path profiling" (ESEC/FSE 2015), section 2.2 (SPP), algorithm 1
//! (PSPP), section 5 (modified SPP of Li and others; pertinent paths of Baswana, Roy and Chouhan). A labelling is
//! *valid* if no two interesting paths have one identity and no other path has the identity of an interesting one.
//!
//! SPP and PSPP number all paths as Ball and Larus do, uninteresting out-edges first; move the value of an edge behind
//! its head where that has no other in-edge; and then drop the values of uninteresting edges. PSPP takes the
//! interesting out-edges by decreasing least identity of the interesting paths behind them, which makes the result
//! valid. Where every edge is interesting there is nothing to drop, so nothing is moved either, and the values are
//! those of Ball and Larus. Linear but for sorting out-edges; the repair is exponential and takes small graphs only.

use super::NumberingError;
use super::set::InterestingSet;
use std::collections::HashMap;
use trodden_flow::numbering::{Numbering, TooManyPaths, absorb, marked_last, number_marked, push_down};
use trodden_flow::{Dag, DagEdgeId, Node};

/// The repair of SPP walks every path for every edge: graphs with more paths are refused.
const MOST_REPAIRED: u64 = 1 << 16;

/// Selective path profiling: interesting out-edges in the order of the graph. The result may be invalid.
///
/// # Errors
/// Too many paths.
pub fn selective(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    with_zeros(dag, set, false)
}

/// Precise selective path profiling: always valid.
///
/// # Errors
/// Too many paths.
pub fn precise_selective(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    with_zeros(dag, set, true)
}

fn with_zeros(dag: &Dag, set: &InterestingSet, sorted: bool) -> Result<Vec<i64>, NumberingError> {
    let mut values = marked_last(dag, set.edges(), sorted)?;
    if set.edges().contains(&false) {
        push_down(dag, &mut values);
        absorb(set.edges(), &mut values);
    }
    Ok(values)
}

/// SPP that drops the value of an uninteresting edge only where the labelling stays valid.
///
/// # Errors
/// Too many paths, in all or for a method that tries them all.
pub fn modified_selective(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    let all = Numbering::ball_larus(dag)?;
    if all.paths() > MOST_REPAIRED {
        return Err(NumberingError::TooLargeForRepair { paths: all.paths(), limit: MOST_REPAIRED });
    }
    let paths: Vec<Vec<DagEdgeId>> = (0..all.paths()).filter_map(|id| all.path(dag, id)).collect();
    let mut values = marked_last(dag, set.edges(), false)?;
    if set.edges().contains(&false) {
        push_down(dag, &mut values);
    }
    for edge in dag.edge_ids().filter(|e| !set.has(*e)) {
        let kept = std::mem::take(&mut values[edge.index()]);
        if kept != 0 && !is_valid(&paths, set, &values) {
            values[edge.index()] = kept;
        }
    }
    Ok(values)
}

/// Compact numbers for the closure, from 0: Ball-Larus numbers of the graph that is left without the uninteresting
/// edges. What leaves that graph adds as much as there are interesting paths, and no value is negative, so other paths
/// have higher numbers.
///
/// # Errors
/// More than 2^31 interesting paths or edges, so that sums might not fit a word, or too many paths in all.
pub fn pertinent(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    let total = i64::try_from(set.closure()).ok().filter(|t| *t <= i64::MAX / 2).ok_or(TooManyPaths(dag.entry().0))?;
    let (mut values, behind) = number_marked(dag, set.edges());
    // A path that left may come back and leave again: only the first time matters, but the sum must fit a word.
    let region = |node: Node| node == dag.entry() || behind[node.index()] > 0;
    let leaves = |e: DagEdgeId| !set.has(e) && region(dag.edge(e).from);
    dag.edge_ids().filter(|e| leaves(*e)).for_each(|e| values[e.index()] = total);
    match most(dag, &values) {
        Some(_) => Ok(values),
        None => Err(TooManyPaths(dag.entry().0).into()),
    }
}

/// The greatest sum of a path, if it fits a word.
fn most(dag: &Dag, values: &[i64]) -> Option<i64> {
    let mut most = vec![0i64; dag.node_count()];
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        for &edge in dag.out(node) {
            let sum = most[dag.edge(edge).to.index()].checked_add(values[edge.index()])?;
            most[node.index()] = most[node.index()].max(sum);
        }
    }
    Some(most[dag.entry().index()])
}

/// Whether interesting paths have identities of their own.
fn is_valid(paths: &[Vec<DagEdgeId>], set: &InterestingSet, values: &[i64]) -> bool {
    let mut seen: HashMap<i64, bool> = HashMap::new();
    paths.iter().all(|path| {
        let sum = path.iter().map(|e| values[e.index()]).sum();
        let interesting = path.iter().all(|e| set.has(*e));
        // Two paths with one identity are no fault if both are uninteresting.
        seen.insert(sum, interesting).is_none_or(|before| !before && !interesting)
    })
}
