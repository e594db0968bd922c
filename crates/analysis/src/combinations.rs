//! Untested combinations: paths that no run took, although some run took each of their edges.
//!
//! Coverage of edges (branches, lines) calls such a path covered: each of its steps was executed, in one path or another. Only counts of
//! paths show that the steps were never executed *together*. Residual path profiling calls this an untested path "all of whose edges are
//! known" (Vaswani, Rajan and Ramalingam); here it is asked of one profile: which paths does the function have over
//! executed edges, and which of these were taken?
//!
//! Counting is a sum over the acyclic graph in topological order, exact up to 2^128 and saturating there; linear in its edges.
//! Listing walks the same graph and enters no node from which no path can be completed, so it takes time in proportion to the
//! paths found and taken. Paths that end at a call that may not return are prefixes of others and are not counted.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{Dag, DagEdgeId, Node, Origin};
use trodden_profile::paths::{FunctionPaths, PathCount, beginning, blocks, ending};
use trodden_unit::{EdgeKind, FunctionMap};

/// Numbers of taken and untested paths of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Combinations {
    /// Complete paths that the function has.
    pub possible: u128,
    /// Those that were taken.
    pub taken: u64,
    /// Those that were not taken, although each of their edges was.
    pub untested: u128,
}

impl Combinations {
    /// Counts a function's paths.
    pub fn new(function: &FunctionMap, dag: &Dag, paths: &FunctionPaths) -> Combinations {
        let taken = paths.complete.len() as u64;
        let executed = executed(dag, paths);
        let possible = completions(dag, |edge| is_completed_by(function, dag, edge))[dag.entry().index()];
        let tested = completions(dag, |edge| executed[edge.index()] && is_completed_by(function, dag, edge))[dag.entry().index()];
        Combinations { possible, taken, untested: tested.saturating_sub(u128::from(taken)) }
    }

    /// The sum over several functions.
    #[must_use]
    pub fn plus(self, other: Combinations) -> Combinations {
        Combinations {
            possible: self.possible.saturating_add(other.possible),
            taken: self.taken + other.taken,
            untested: self.untested.saturating_add(other.untested),
        }
    }
}

/// The paths of a function in several programs: those that any of them took.
pub fn of_all<'p>(programs: impl IntoIterator<Item = &'p FunctionPaths>) -> FunctionPaths {
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

/// Untested combinations of a function as paths with a count of 0, at most so many, in the order of the graph's edges.
pub fn untested(function: &FunctionMap, dag: &Dag, paths: &FunctionPaths, most: usize) -> Vec<PathCount> {
    let Ok(numbering) = function.numbering(dag) else { return Vec::new() };
    let path = |id: u64| {
        let path = numbering.path(dag, id)?;
        let end = ending(function, dag, &path)?;
        Some(PathCount { id, count: 0, blocks: blocks(dag, &path), beginning: beginning(dag, &path), end, path })
    };
    numbers(function, dag, paths, most).into_iter().filter_map(path).collect()
}

/// Their numbers.
fn numbers(function: &FunctionMap, dag: &Dag, paths: &FunctionPaths, most: usize) -> Vec<u64> {
    let executed = executed(dag, paths);
    let is_usable = |edge: DagEdgeId| executed[edge.index()] && is_completed_by(function, dag, edge);
    let left = completions(dag, is_usable);
    let taken: BTreeSet<u64> = paths.complete.iter().map(|p| p.id).collect();
    let mut found = Vec::new();
    let mut open = vec![(dag.entry(), 0i64)];
    while let Some((node, sum)) = open.pop() {
        if found.len() == most {
            break;
        }
        if node == dag.exit() {
            let id = sum as u64;
            found.extend((!taken.contains(&id)).then_some(id));
            continue;
        }
        let edges = dag.out(node).iter().rev().filter(|e| is_usable(**e) && left[dag.edge(**e).to.index()] > 0);
        open.extend(edges.map(|e| (dag.edge(*e).to, sum + function.values[e.index()])));
    }
    found
}

/// For each edge of the acyclic graph: whether it is on an executed path, complete or unfinished.
fn executed(dag: &Dag, paths: &FunctionPaths) -> Vec<bool> {
    let mut executed = vec![false; dag.edges().len()];
    let executions = paths.all().filter(|p| p.is_complete() || p.count > 0);
    executions.flat_map(|p| p.path).for_each(|edge| executed[edge.index()] = true);
    executed
}

/// Whether a path over an edge can be complete. A path that ends at a call that may not return is not.
fn is_completed_by(function: &FunctionMap, dag: &Dag, edge: DagEdgeId) -> bool {
    !matches!(dag.edge(edge).origin, Origin::Real(e) if function.edges[e.index()].kind == EdgeKind::Reach)
}

/// For each node the number of paths from it to the exit over the included edges.
fn completions(dag: &Dag, included: impl Fn(DagEdgeId) -> bool) -> Vec<u128> {
    let mut left = vec![0u128; dag.node_count()];
    left[dag.exit().index()] = 1;
    let all: Vec<Node> = dag.order().to_vec();
    for node in all.into_iter().rev().filter(|n| *n != dag.exit()) {
        let edges = dag.out(node).iter().filter(|e| included(**e));
        left[node.index()] = edges.fold(0, |sum: u128, e| sum.saturating_add(left[dag.edge(*e).to.index()]));
    }
    left
}
