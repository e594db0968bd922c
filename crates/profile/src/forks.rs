//! Executions of functions that were under way when their process forked, as if each process had called them itself.
//!
//! A fork is called once and returns twice, and so do the functions that were under way: more paths begin behind the call than end at
//! it. Counts are right all the same. But LLVM's tools compute the counts of many regions and edges as differences of counters, for which
//! as much must leave a block as enters it. Else what the parent executes behind `if (fork() == 0) { ... }` would be shown as 0: one call
//! of the function, less one child.
//!
//! So each process that continues a function is given the path to where it begins: of a path that the parent had begun its first part, and
//! to what lies behind a cut the shortest path over executed edges. No block that was not executed gets a count.

use crate::paths::{Beginning, FunctionPaths};
use std::collections::{BTreeMap, VecDeque};
use trodden_flow::{Edge, Node};
use trodden_unit::{BlockKind, EdgeKind, FunctionMap, MapError};

/// The paths with block and edge counts in which as much leaves each block as enters it, apart from unfinished paths; `None` if that is so
/// already. `forks` are the edges behind the function's calls by which a process becomes two.
pub fn with_paths_of_children(function: &FunctionMap, paths: &FunctionPaths, forks: &[Edge]) -> Result<Option<FunctionPaths>, MapError> {
    if function.is_partial() {
        return Ok(None);
    }
    let mut whole = paths.clone();
    whole.unfinished.retain(|prefix| prefix.count > 0);
    whole.derive_counts(function, &function.dag()?);
    let continued = continued(function, &whole, forks);
    if continued.is_empty() && whole.unfinished.len() == paths.unfinished.len() {
        return Ok(None);
    }
    for (head, times) in continued {
        for edge in shortest_path(function, &whole.edges, head) {
            let from = &mut whole.blocks[function.edges[edge.index()].from.index()];
            *from = from.saturating_add(times);
            whole.edges[edge.index()] = whole.edges[edge.index()].saturating_add(times);
        }
    }
    Ok(Some(whole))
}

/// Blocks behind cut edges at which more paths begin than end, because of forks, and how many more.
fn continued(function: &FunctionMap, paths: &FunctionPaths, forks: &[Edge]) -> BTreeMap<Node, u64> {
    let behind_fork = |head: Node| forks.iter().any(|edge| function.edges.get(edge.index()).is_some_and(|e| e.to == head));
    // What comes back from setjmp does so in one process, and LLVM counts it so.
    let is_continuation = |head: Node| function.blocks.get(head.index()).is_some_and(|b| b.kind == BlockKind::Continuation);
    let mut more = BTreeMap::<Node, i128>::new();
    for path in paths.all() {
        if let (Beginning::After(_), Some(head)) = (path.beginning, path.blocks.first()) {
            *more.entry(*head).or_default() += path.count;
        }
    }
    for (edge, _) in &function.cuts {
        if let Some(more) = more.get_mut(&function.edges[edge.index()].to) {
            *more -= i128::from(paths.edges[edge.index()]);
        }
    }
    let is_forked = |(head, more): &(Node, i128)| *more > 0 && *head != Node(0) && (!is_continuation(*head) || behind_fork(*head));
    more.into_iter().filter(is_forked).map(|(head, more)| (head, u64::try_from(more).unwrap_or(u64::MAX))).collect()
}

/// The edges of a shortest path from the entry over executed edges; none if there is no such path.
fn shortest_path(function: &FunctionMap, executed: &[u64], to: Node) -> Vec<Edge> {
    let mut outgoing = BTreeMap::<Node, Vec<Edge>>::new();
    for (index, edge) in function.edges.iter().enumerate() {
        if executed[index] > 0 && edge.kind != EdgeKind::Reach {
            outgoing.entry(edge.from).or_default().push(Edge(index as u32));
        }
    }
    let mut came_by = BTreeMap::from([(Node(0), None)]);
    let mut open = VecDeque::from([Node(0)]);
    while let Some(node) = open.pop_front() {
        for &edge in outgoing.get(&node).into_iter().flatten() {
            came_by.entry(function.edges[edge.index()].to).or_insert_with_key(|next| {
                open.push_back(*next);
                Some(edge)
            });
        }
    }
    let mut path = Vec::new();
    let mut at = to;
    while let Some(Some(edge)) = came_by.get(&at) {
        path.push(*edge);
        at = function.edges[edge.index()].from;
    }
    path
}
