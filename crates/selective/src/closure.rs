//! Numberings with one register for all paths that consist of interesting edges (the *closure* of the edges): selective path profiling
//! (SPP), its repair, precise selective path profiling (PSPP), and compact numbers.
//!
//! Source: Afraz, Saha and Kanade, "P3: partitioned path profiling" (ESEC/FSE 2015), section 2.2, algorithm 1 and section 5. A labelling is
//! *valid* if each interesting path has a number that no other path has. SPP and PSPP number all paths by Ball-Larus, uninteresting
//! out-edges first, push values over nodes with one in-edge, and drop the values of uninteresting edges. PSPP orders interesting out-edges
//! by decreasing least number, which makes the result valid. If all edges are interesting, no value is dropped or pushed.
//!
//! The repair takes exponential time. The others take linear time except for sorting.

use super::NumberingError;
use super::set::InterestingSet;
use std::collections::HashMap;
use trodden_flow::numbering::{
    Numbering, TooManyPaths, number_marked_paths, number_with_marked_edges_last, push_values_down, zero_unmarked_values,
};
use trodden_flow::{Dag, DagEdgeId, Node};

/// Maximum number of paths for which SPP is repaired, because the repair tries every path for every edge.
const MAX_REPAIRED_PATHS: u64 = 1 << 16;

/// Returns the edge values of SPP, with interesting out-edges in the order of the graph. Other paths may have the number of an interesting
/// path.
pub fn spp_values(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    values_after_push(dag, set, false)
}

/// Returns the edge values of precise selective path profiling. No other path has the number of an interesting path.
pub fn pspp_values(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    values_after_push(dag, set, true)
}

fn values_after_push(dag: &Dag, set: &InterestingSet, sorted: bool) -> Result<Vec<i64>, NumberingError> {
    let mut values = number_with_marked_edges_last(dag, set.edges(), sorted)?;
    if !set.edges().is_full() {
        push_values_down(dag, &mut values);
        zero_unmarked_values(set.edges(), &mut values);
    }
    Ok(values)
}

/// Returns the edge values of SPP with repair, which drops the value of an uninteresting edge only if no other path then has the number of
/// an interesting path. Fails if there are too many paths for the repair to try each of them.
pub fn mspp_values(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    let all = Numbering::ball_larus(dag)?;
    if all.paths() > MAX_REPAIRED_PATHS {
        return Err(NumberingError::TooLargeForRepair { paths: all.paths(), limit: MAX_REPAIRED_PATHS });
    }
    let paths: Vec<Vec<DagEdgeId>> = (0..all.paths()).filter_map(|id| all.path(dag, id)).collect();
    let mut values = number_with_marked_edges_last(dag, set.edges(), false)?;
    if !set.edges().is_full() {
        push_values_down(dag, &mut values);
    }
    for edge in dag.edge_ids().filter(|e| !set.has(*e)) {
        let kept = std::mem::take(&mut values[edge.index()]);
        if kept != 0 && !has_no_other_path_with_interesting_number(&paths, set, &values) {
            values[edge.index()] = kept;
        }
    }
    Ok(values)
}

/// Numbers the paths of interesting edges compactly from 0, by the Ball-Larus numbers of the graph without its uninteresting edges. An edge
/// that leaves this graph adds the number of interesting paths, and no value is negative, so all other paths have higher numbers than the
/// interesting ones.
pub fn pertinent_path_values(dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    let total = i64::try_from(set.closure()).ok().filter(|t| *t <= i64::MAX / 2).ok_or(TooManyPaths(dag.entry().0))?;
    let (mut values, marked_paths) = number_marked_paths(dag, set.edges());
    // A path may leave the graph of interesting edges several times. Only the first time matters, but the sum must fit into a word.
    let region = |node: Node| node == dag.entry() || marked_paths[node.index()] > 0;
    let leaves = |e: DagEdgeId| !set.has(e) && region(dag.edge(e).from);
    dag.edge_ids().filter(|e| leaves(*e)).for_each(|e| values[e.index()] = total);
    match find_greatest_sum(dag, &values) {
        Some(_) => Ok(values),
        None => Err(TooManyPaths(dag.entry().0).into()),
    }
}

fn find_greatest_sum(dag: &Dag, values: &[i64]) -> Option<i64> {
    let mut greatest_sum = vec![0i64; dag.node_count()];
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        for &edge in dag.out(node) {
            let sum = greatest_sum[dag.edge(edge).to.index()].checked_add(values[edge.index()])?;
            greatest_sum[node.index()] = greatest_sum[node.index()].max(sum);
        }
    }
    Some(greatest_sum[dag.entry().index()])
}

fn has_no_other_path_with_interesting_number(paths: &[Vec<DagEdgeId>], set: &InterestingSet, values: &[i64]) -> bool {
    let mut seen: HashMap<i64, bool> = HashMap::new();
    paths.iter().all(|path| {
        let sum = path.iter().map(|e| values[e.index()]).sum();
        let interesting = path.iter().all(|e| set.has(*e));
        // Two uninteresting paths may have the same number.
        seen.insert(sum, interesting).is_none_or(|before| !before && !interesting)
    })
}
