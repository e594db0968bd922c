//! Balances the counts of functions that were active when their process forked.
//!
//! `fork` is called once and returns twice, so more paths begin after the call than end at it. These counts are correct, but LLVM's tools
//! compute the counts of regions and edges as differences of counters, assuming that each block is left as often as it is entered. With
//! unbalanced counts, they would report 0 executions of the code that the parent runs after `if (fork() == 0) { ... }`: one call of the
//! function minus one child.
//!
//! Therefore, each child process is counted as if it had run from the entry to the block where it continues. Its path is the part of the
//! parent's path up to there if that is known, otherwise a shortest path of executed edges.

use crate::paths::{FunctionPaths, PathStart};
use std::collections::{BTreeMap, VecDeque};
use trodden_flow::{Edge, Node};
use trodden_unit::{BlockKind, EdgeKind, FunctionMap, MapError};

/// Returns the paths with block and edge counts that are balanced except for unfinished paths. `forks` are the edges after the calls that
/// duplicate the process. Returns `None` if the counts are balanced already, or if the function counts only some of its paths.
pub fn balance_forks(function: &FunctionMap, paths: &FunctionPaths, forks: &[Edge]) -> Result<Option<FunctionPaths>, MapError> {
    if function.is_partial() {
        return Ok(None);
    }
    let mut balanced = paths.clone();
    balanced.unfinished.retain(|prefix| prefix.count > 0);
    balanced.derive_block_and_edge_counts(function, &function.dag()?);
    let extra_starts = count_extra_starts_after_forks(function, &balanced, forks);
    if extra_starts.is_empty() && balanced.unfinished.len() == paths.unfinished.len() {
        return Ok(None);
    }
    for (head, times) in extra_starts {
        for edge in shortest_path(function, &balanced.edges, head) {
            let from = &mut balanced.blocks[function.graph.from(edge).index()];
            *from = from.saturating_add(times);
            balanced.edges[edge.index()] = balanced.edges[edge.index()].saturating_add(times);
        }
    }
    Ok(Some(balanced))
}

/// Returns the blocks after cut edges at which more paths begin than end because of forks, with the excess of paths that begin. Cut edges
/// are the edges at which paths are divided, such as back edges.
fn count_extra_starts_after_forks(function: &FunctionMap, paths: &FunctionPaths, forks: &[Edge]) -> BTreeMap<Node, u64> {
    let is_after_fork = |head: Node| forks.iter().any(|edge| function.graph.get_edge(*edge).is_some_and(|e| e.to == head));
    // Blocks after `setjmp` are excluded, although it also returns twice: LLVM's own counters count both returns, since they happen in one
    // process.
    let is_continuation = |head: Node| function.blocks.get(head.index()).is_some_and(|b| b.kind == BlockKind::Continuation);
    let mut excess = BTreeMap::<Node, i128>::new();
    for path in paths.all() {
        if let (PathStart::After(_), Some(head)) = (path.beginning, path.blocks.first()) {
            *excess.entry(*head).or_default() += path.count;
        }
    }
    for (edge, _) in &function.cuts {
        if let Some(excess) = excess.get_mut(&function.graph.to(*edge)) {
            *excess -= i128::from(paths.edges[edge.index()]);
        }
    }
    let is_forked = |(head, excess): &(Node, i128)| *excess > 0 && *head != Node(0) && (!is_continuation(*head) || is_after_fork(*head));
    excess.into_iter().filter(is_forked).map(|(head, excess)| (head, u64::try_from(excess).unwrap_or(u64::MAX))).collect()
}

/// Returns a shortest path of executed edges from the entry to the block `to`; empty if there is none.
fn shortest_path(function: &FunctionMap, executed: &[u64], to: Node) -> Vec<Edge> {
    let mut outgoing = BTreeMap::<Node, Vec<Edge>>::new();
    for edge in function.graph.edges().filter(|edge| executed[edge.index()] > 0 && function.graph.kind(*edge) != EdgeKind::Reach) {
        outgoing.entry(function.graph.from(edge)).or_default().push(edge);
    }
    let mut predecessors = BTreeMap::from([(Node(0), None)]);
    let mut open = VecDeque::from([Node(0)]);
    while let Some(node) = open.pop_front() {
        for &edge in outgoing.get(&node).into_iter().flatten() {
            predecessors.entry(function.graph.to(edge)).or_insert_with_key(|next| {
                open.push_back(*next);
                Some(edge)
            });
        }
    }
    let mut path = Vec::new();
    let mut at = to;
    while let Some(Some(edge)) = predecessors.get(&at) {
        path.push(*edge);
        at = function.graph.from(*edge);
    }
    path
}
