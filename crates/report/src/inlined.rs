//! Entry counts of inlined code, computed from the paths of the function that contains the code.
//!
//! An inlined body is a scope in the debug information, which identifies a function and the call that it replaces. A block belongs to a
//! body if it has code from the body or from bodies inlined into it.
//!
//! Every execution of a path through a block of the body is an entry, unless the path begins inside the body, that is, after a cut or in a
//! later iteration of a loop in the body. A loop belongs to a body if all of the loop's code does. A body with an executed block has at
//! least one entry. Complexity: O(paths × blocks × inlining depth), plus a search for each back edge.

use crate::view::Function;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{CutReason, Edge, Node};
use trodden_profile::{FunctionPaths, PathStart};
use trodden_unit::{ReachedCall, SourcePosition, UnitMap};

/// Returns the entry counts of the bodies inlined into a function, by scope. Bodies that were not executed have count 0.
pub fn count_inlined_entries(function: &Function) -> BTreeMap<u32, u64> {
    let map = function.unit_map();
    let bodies_of = |at: usize, up_to_calls: bool| find_inlined_bodies_at(map, &block_positions(function, at, up_to_calls));
    let bodies: Vec<BTreeSet<u32>> = (0..function.map.blocks.len()).map(|at| bodies_of(at, false)).collect();
    let ends = function.paths.unfinished.iter().filter_map(|path| path.blocks.last());
    let before: BTreeMap<usize, BTreeSet<u32>> = ends.map(|block| (block.index(), bodies_of(block.index(), true))).collect();
    let mut entries: BTreeMap<u32, i128> = bodies.iter().flatten().map(|scope| (*scope, 0)).collect();
    if entries.is_empty() {
        return BTreeMap::new();
    }
    let cuts = function.map.cuts.iter();
    let inside: BTreeMap<Edge, BTreeSet<u32>> =
        cuts.map(|(cut, why)| (*cut, find_inlined_bodies_continued_after(function, &bodies, *cut, *why))).collect();
    for path in function.paths.all() {
        let continued = match path.beginning {
            PathStart::Entry => None,
            PathStart::After(edge) => inside.get(&edge),
        };
        // A path that stopped in a call did not execute the code after the call.
        let stops = |at: usize| !path.is_complete() && at + 1 == path.blocks.len();
        let of_block = |(at, block): (usize, &Node)| if stops(at) { before.get(&block.index()) } else { bodies.get(block.index()) };
        let entered: BTreeSet<u32> = path.blocks.iter().enumerate().filter_map(of_block).flatten().copied().collect();
        for scope in entered.iter().filter(|s| continued.is_none_or(|bodies| !bodies.contains(s))) {
            *entries.entry(*scope).or_default() += path.count;
        }
    }
    let stopped = count_stops_by_block(function, &function.paths);
    let of_block = |at: usize| match function.paths.blocks.get(at) {
        Some(&count) if count > stopped[at] => bodies.get(at),
        Some(1..) => before.get(&at),
        _ => None,
    };
    let executed: BTreeSet<u32> = (0..bodies.len()).filter_map(of_block).flatten().copied().collect();
    entries.into_iter().map(|(scope, n)| (scope, n.clamp(i128::from(executed.contains(&scope)), i128::from(u64::MAX)) as u64)).collect()
}

/// Returns the number of executions that stopped in one of a block's calls, indexed by block.
pub fn count_stops_by_block(function: &Function, paths: &FunctionPaths) -> Vec<u64> {
    let mut stopped = vec![0; function.map.blocks.len()];
    for path in &paths.unfinished {
        if let Some(block) = path.blocks.last().and_then(|block| stopped.get_mut(block.index())) {
            *block = i64::saturating_add(*block, path.count);
        }
    }
    stopped.into_iter().map(|count: i64| u64::try_from(count).unwrap_or(0)).collect()
}

/// Returns a block's calls that may not return, each with the number of times it returned. `entered` and `left` are the numbers of times
/// the block was entered and left. A call without a counter is assumed to have returned `left` times.
pub fn count_call_returns<'a>(function: &Function<'a>, block: usize, entered: u64, left: u64) -> Vec<(&'a ReachedCall, u64)> {
    let unit = function.unit;
    let number = unit.map.functions.iter().position(|map| std::ptr::eq(map, function.map));
    let calls = unit.map.edge_profile.iter().zip(number).flat_map(|(edges, number)| edges.reached_calls_in(number));
    // A child process inherits a path in the middle of a block, but not the counts of the calls before the fork. Therefore a counter may be
    // too low, and is clamped.
    let counted = |counter: u64| {
        unit.counts.counters_in_range(counter..counter + 1).map(|(_, n)| n).next().unwrap_or(0).clamp(left, entered.max(left))
    };
    calls.filter(|call| call.block.index() == block).map(|call| (call, call.counter.map_or(left, counted))).collect()
}

/// Returns how often the code after each call in a block was executed, as pairs (number of source positions up to the call, executions).
/// The block was entered `entered` times and left `left` times. Calls without a counter are omitted.
pub fn count_executions_after_calls(function: &Function, block: usize, entered: u64, left: u64) -> Vec<(usize, u64)> {
    let counted = count_call_returns(function, block, entered, left).into_iter().filter(|(call, _)| call.counter.is_some());
    let mut executions: Vec<_> = counted.map(|(call, returned)| (call.up_to_call as usize, returned)).collect();
    executions.push((function.map.blocks[block].up_to_calls as usize, left));
    executions
}

/// Returns the source positions in a block, including its branch. If `up_to_calls` is true, positions after the last call that may not
/// return are omitted.
fn block_positions(function: &Function, block: usize, up_to_calls: bool) -> Vec<SourcePosition> {
    let Some(block) = function.map.blocks.get(block) else { return Vec::new() };
    match up_to_calls {
        true => block.positions.iter().copied().take(block.up_to_calls as usize).collect(),
        false => block.positions.iter().copied().chain(block.branch).collect(),
    }
}

fn find_inlined_bodies_at(map: &UnitMap, positions: &[SourcePosition]) -> BTreeSet<u32> {
    positions.iter().flat_map(|p| enclosing_scopes(map, p.scope)).collect()
}

/// Returns a scope and the scopes around it, except for the outermost one, which is the function itself.
fn enclosing_scopes(map: &UnitMap, scope: u32) -> impl Iterator<Item = u32> {
    let call = move |scope: u32| map.scopes.get(scope as usize).and_then(|s| s.inlined_at).filter(|call| call.scope < scope);
    // Scopes refer only to earlier scopes. The check prevents an endless loop in corrupt maps.
    std::iter::successors(Some(scope), move |at| call(*at).map(|c| c.scope)).filter(move |at| call(*at).is_some())
}

/// Returns the inlined bodies that a path may already be in when it starts, if it starts after `cut`, an edge at which the previous path
/// ended.
fn find_inlined_bodies_continued_after(function: &Function, bodies: &[BTreeSet<u32>], cut: Edge, reason: CutReason) -> BTreeSet<u32> {
    let Some(edge) = function.map.graph.get_edge(cut) else { return BTreeSet::new() };
    if reason != CutReason::Back {
        return bodies.get(edge.from.index()).cloned().unwrap_or_default();
    }
    // The latch's branch belongs to the inlined body that contains the loop, even if the optimiser moved code of callers into the loop.
    let branch = function.map.blocks.get(edge.from.index()).and_then(|b| b.branch);
    let owner: Option<BTreeSet<u32>> = branch.map(|p| enclosing_scopes(function.unit_map(), p.scope).collect());
    let body = find_loop_body(function, edge.from, edge.to);
    // An irreducible loop has no header, so that only the source and the target of the edge are known to be in the loop.
    let is_natural = edge.to == Node(0) || !body.contains(&Node(0));
    let body = if is_natural { body } else { BTreeSet::from([edge.from, edge.to]) };
    let has_code = |block: &Node| function.map.blocks.get(block.index()).is_some_and(|b| !b.positions.is_empty() || b.branch.is_some());
    let each = body.into_iter().filter(has_code).filter_map(|block| bodies.get(block.index()).cloned());
    each.chain(owner).reduce(|common, next| common.intersection(&next).copied().collect()).unwrap_or_default()
}

/// Returns the blocks of a back edge's natural loop: those that reach the latch without passing through the header.
fn find_loop_body(function: &Function, latch: Node, header: Node) -> BTreeSet<Node> {
    let mut found = BTreeSet::from([header, latch]);
    let mut worklist = if latch == header { Vec::new() } else { vec![latch] };
    while let Some(block) = worklist.pop() {
        worklist.extend(function.predecessors(block).filter(|from| found.insert(*from)));
    }
    found
}
