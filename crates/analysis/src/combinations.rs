//! Untested combinations: paths that no run took, although each of their edges was taken.
//!
//! Edge coverage (of branches or lines) reports such a path as covered. Only path counts show that its steps were never executed
//! *together*. Residual path profiling (Vaswani, Rajan and Ramalingam) finds such paths relative to known paths; here, the only input is
//! one profile.
//!
//! Counting takes time linear in the size of the acyclic graph and is exact up to 2^128; listing takes time proportional to the number of
//! paths found and taken. Paths that end at a call that may not return are not counted, because they are prefixes of other paths.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{Dag, DagEdgeId, DagEdgeSet, Node, Origin};
use trodden_profile::paths::{FunctionPaths, PathCount, path_blocks, path_end, path_start};
use trodden_unit::{EdgeKind, FunctionMap};

/// Numbers of possible, taken and untested paths of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCombinationCounts {
    /// Complete paths in the graph.
    pub possible: u128,
    /// Complete paths that were taken.
    pub taken: u64,
    /// Complete paths that were not taken, although each of their edges was.
    pub untested: u128,
}

impl PathCombinationCounts {
    /// Counts the paths of a function.
    pub fn new(function: &FunctionMap, dag: &Dag, paths: &FunctionPaths) -> PathCombinationCounts {
        let taken = paths.complete.len() as u64;
        let executed = executed_dag_edges(dag, paths);
        let possible = count_completions(dag, |edge| can_edge_be_on_complete_path(function, dag, edge))[dag.entry().index()];
        let tested = count_completions(dag, |edge| executed.contains(edge) && can_edge_be_on_complete_path(function, dag, edge))
            [dag.entry().index()];
        PathCombinationCounts { possible, taken, untested: tested.saturating_sub(u128::from(taken)) }
    }

    /// Returns the sum of two functions' numbers.
    #[must_use]
    pub fn add_combinations(self, other: PathCombinationCounts) -> PathCombinationCounts {
        PathCombinationCounts {
            possible: self.possible.saturating_add(other.possible),
            taken: self.taken + other.taken,
            untested: self.untested.saturating_add(other.untested),
        }
    }
}

/// Merges a function's paths from several programs; their counts are added.
pub fn merge_programs<'p>(programs: impl IntoIterator<Item = &'p FunctionPaths>) -> FunctionPaths {
    let mut all = FunctionPaths::default();
    let mut complete = BTreeMap::<u64, PathCount>::new();
    for paths in programs {
        for path in &paths.complete {
            match complete.entry(path.id) {
                Entry::Vacant(entry) => _ = entry.insert(path.clone()),
                Entry::Occupied(mut entry) => entry.get_mut().count = entry.get().count.saturating_add(path.count),
            }
        }
        all.unfinished.extend(paths.unfinished.iter().cloned());
    }
    all.complete = complete.into_values().collect();
    all
}

/// Returns at most `limit` untested combinations of a function as paths with a count of 0, in the order of the graph's edges.
pub fn find_untested_paths(function: &FunctionMap, dag: &Dag, paths: &FunctionPaths, limit: usize) -> Vec<PathCount> {
    let Ok(numbering) = function.numbering(dag) else { return Vec::new() };
    let path = |id: u64| {
        let path = numbering.path(dag, id)?;
        let end = path_end(function, dag, &path)?;
        Some(PathCount { id, count: 0, blocks: path_blocks(dag, &path), beginning: path_start(dag, &path), end, path })
    };
    find_untested_ids(function, dag, paths, limit).into_iter().filter_map(path).collect()
}

fn find_untested_ids(function: &FunctionMap, dag: &Dag, paths: &FunctionPaths, limit: usize) -> Vec<u64> {
    let executed = executed_dag_edges(dag, paths);
    let is_usable = |edge: DagEdgeId| executed.contains(edge) && can_edge_be_on_complete_path(function, dag, edge);
    let completions = count_completions(dag, is_usable);
    let taken: BTreeSet<u64> = paths.complete.iter().map(|p| p.id).collect();
    let mut found = Vec::new();
    let mut open = vec![(dag.entry(), 0i64)];
    while let Some((node, sum)) = open.pop() {
        if found.len() == limit {
            break;
        }
        if node == dag.exit() {
            let id = sum as u64;
            found.extend((!taken.contains(&id)).then_some(id));
            continue;
        }
        let edges = dag.out(node).iter().rev().filter(|e| is_usable(**e) && completions[dag.edge(**e).to.index()] > 0);
        open.extend(edges.map(|e| (dag.edge(*e).to, sum + function.values[e.index()])));
    }
    found
}

/// Returns the edges on executed paths, complete or unfinished.
fn executed_dag_edges(dag: &Dag, paths: &FunctionPaths) -> DagEdgeSet {
    let executions = paths.all().filter(|p| p.is_complete() || p.count > 0);
    DagEdgeSet::from_members(dag.edges().len(), executions.flat_map(|p| p.path).copied())
}

/// Returns false if a path over this edge ends at a call that may not return. Such a path cannot be complete.
fn can_edge_be_on_complete_path(function: &FunctionMap, dag: &Dag, edge: DagEdgeId) -> bool {
    !matches!(dag.edge(edge).origin, Origin::Real(e) if function.graph.kind(e) == EdgeKind::Reach)
}

/// Returns, for each node, the number of paths to the exit over the included edges.
fn count_completions(dag: &Dag, included: impl Fn(DagEdgeId) -> bool) -> Vec<u128> {
    let mut completions = vec![0u128; dag.node_count()];
    completions[dag.exit().index()] = 1;
    let all: Vec<Node> = dag.order().to_vec();
    for node in all.into_iter().rev().filter(|n| *n != dag.exit()) {
        let edges = dag.out(node).iter().filter(|e| included(**e));
        completions[node.index()] = edges.fold(0, |sum: u128, e| sum.saturating_add(completions[dag.edge(*e).to.index()]));
    }
    completions
}
