//! How often inlined code was entered, from the paths of the function that it became part of.
//!
//! An inlined body is a scope of the debug information: a function, and the call that it replaces. Its blocks are those with code of the
//! body, or of bodies inlined into it. Every execution of a path that runs through one of its blocks is one entry, except of paths that
//! begin inside it: in the next iteration of a loop of the body, or after a cut. A loop belongs to a body if all code of the loop does.
//!
//! Invariant: a body with an executed block has at least one entry. Complexity: O(paths x blocks x depth of inlining) and a search
//! for each back edge.

use crate::view::Function;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{CutReason, Edge, Node};
use trodden_profile::{Beginning, FunctionPaths};
use trodden_unit::{Position, ReachedCall, UnitMap};

/// Entries of the bodies that were inlined into a function, by scope; bodies that were not executed have 0.
pub fn entries(function: &Function) -> BTreeMap<u32, u64> {
    let map = function.units_map();
    let bodies_of = |at: usize, up_to_calls: bool| bodies(map, &positions(function, at, up_to_calls));
    let bodies: Vec<BTreeSet<u32>> = (0..function.map.blocks.len()).map(|at| bodies_of(at, false)).collect();
    let ends = function.paths.unfinished.iter().filter_map(|path| path.blocks.last());
    let before: BTreeMap<usize, BTreeSet<u32>> = ends.map(|block| (block.index(), bodies_of(block.index(), true))).collect();
    let mut entries: BTreeMap<u32, i128> = bodies.iter().flatten().map(|scope| (*scope, 0)).collect();
    if entries.is_empty() {
        return BTreeMap::new();
    }
    let cuts = function.map.cuts.iter();
    let within: BTreeMap<Edge, BTreeSet<u32>> = cuts.map(|(cut, why)| (*cut, around(function, &bodies, *cut, *why))).collect();
    for path in function.paths.all() {
        let continued = match path.beginning {
            Beginning::Entry => None,
            Beginning::After(edge) => within.get(&edge),
        };
        // A path that stopped in a call executed nothing behind it.
        let stops = |at: usize| !path.is_complete() && at + 1 == path.blocks.len();
        let of_block = |(at, block): (usize, &Node)| if stops(at) { before.get(&block.index()) } else { bodies.get(block.index()) };
        let entered: BTreeSet<u32> = path.blocks.iter().enumerate().filter_map(of_block).flatten().copied().collect();
        for scope in entered.iter().filter(|s| continued.is_none_or(|inside| !inside.contains(s))) {
            *entries.entry(*scope).or_default() += path.count;
        }
    }
    let stopped = stopped(function, &function.paths);
    let of_block = |at: usize| match function.paths.blocks.get(at) {
        Some(&count) if count > stopped[at] => bodies.get(at),
        Some(1..) => before.get(&at),
        _ => None,
    };
    let executed: BTreeSet<u32> = (0..bodies.len()).filter_map(of_block).flatten().copied().collect();
    entries.into_iter().map(|(scope, n)| (scope, n.clamp(i128::from(executed.contains(&scope)), i128::from(u64::MAX)) as u64)).collect()
}

/// How many of a function's paths stopped in a call of each block.
pub fn stopped(function: &Function, paths: &FunctionPaths) -> Vec<u64> {
    let mut stopped = vec![0; function.map.blocks.len()];
    for path in &paths.unfinished {
        if let Some(block) = path.blocks.last().and_then(|block| stopped.get_mut(block.index())) {
            *block = i64::saturating_add(*block, path.count);
        }
    }
    stopped.into_iter().map(|count: i64| u64::try_from(count).unwrap_or(0)).collect()
}

/// How often each call of a block in which paths may stop returned, of a block that `entered` paths entered and `left` left.
pub fn returns<'a>(function: &Function<'a>, block: usize, entered: u64, left: u64) -> Vec<(&'a ReachedCall, u64)> {
    let unit = function.unit;
    let number = unit.map.functions.iter().position(|map| std::ptr::eq(map, function.map));
    let calls = unit.map.edge_profile.iter().zip(number).flat_map(|(edges, number)| edges.reached_in(number));
    // A process that a fork began has not counted what its parent did in the block before.
    let counted =
        |counter: u64| unit.counts.within(counter..counter + 1).map(|(_, n)| n).next().unwrap_or(0).clamp(left, entered.max(left));
    calls.filter(|call| call.block.index() == block).map(|call| (call, call.counter.map_or(left, counted))).collect()
}

/// How often the code of a block was executed, which `entered` paths entered and `left` left: for each call that may not return and whose
/// returns are known, the number of positions up to it and how often the code behind it was executed.
pub fn passes(function: &Function, block: usize, entered: u64, left: u64) -> Vec<(usize, u64)> {
    let counted = returns(function, block, entered, left).into_iter().filter(|(call, _)| call.counter.is_some());
    let mut passes: Vec<_> = counted.map(|(call, returned)| (call.up_to_call as usize, returned)).collect();
    passes.push((function.map.blocks[block].up_to_calls as usize, left));
    passes
}

/// Positions of a block, that of its branch among them; or only those up to its last call that may not return.
fn positions(function: &Function, block: usize, up_to_calls: bool) -> Vec<Position> {
    let Some(block) = function.map.blocks.get(block) else { return Vec::new() };
    match up_to_calls {
        true => block.positions.iter().copied().take(block.up_to_calls as usize).collect(),
        false => block.positions.iter().copied().chain(block.branch).collect(),
    }
}

/// The inlined bodies that positions are in.
fn bodies(map: &UnitMap, positions: &[Position]) -> BTreeSet<u32> {
    positions.iter().flat_map(|p| chain(map, p.scope)).collect()
}

/// A scope and those around it, without the function itself.
fn chain(map: &UnitMap, scope: u32) -> impl Iterator<Item = u32> {
    let call = move |scope: u32| map.scopes.get(scope as usize).and_then(|s| s.inlined_at).filter(|call| call.scope < scope);
    // A scope refers to an earlier one; otherwise the map is damaged.
    std::iter::successors(Some(scope), move |at| call(*at).map(|c| c.scope)).filter(move |at| call(*at).is_some())
}

/// For a path that begins after a cut edge: the bodies that control was in before the edge.
fn around(function: &Function, bodies: &[BTreeSet<u32>], cut: Edge, reason: CutReason) -> BTreeSet<u32> {
    let Some(edge) = function.map.edges.get(cut.index()) else { return BTreeSet::new() };
    if reason != CutReason::Back {
        return bodies.get(edge.from.index()).cloned().unwrap_or_default();
    }
    // The branch that closes the loop belongs to the body that has the loop. The optimiser may have moved code of callers into the loop.
    let branch = function.map.blocks.get(edge.from.index()).and_then(|b| b.branch);
    let owner: Option<BTreeSet<u32>> = branch.map(|p| chain(function.units_map(), p.scope).collect());
    let body = loop_body(&function.into, edge.from, edge.to);
    // A loop with several entries has no head: then its ends are all that is known to be in it.
    let is_natural = edge.to == Node(0) || !body.contains(&Node(0));
    let body = if is_natural { body } else { BTreeSet::from([edge.from, edge.to]) };
    let has_code = |block: &Node| function.map.blocks.get(block.index()).is_some_and(|b| !b.positions.is_empty() || b.branch.is_some());
    let each = body.into_iter().filter(has_code).filter_map(|block| bodies.get(block.index()).cloned());
    each.chain(owner).reduce(|common, next| common.intersection(&next).copied().collect()).unwrap_or_default()
}

/// The blocks of the loop that a back edge closes: those from which the edge is reached without passing its head.
fn loop_body(into: &[Vec<Node>], latch: Node, head: Node) -> BTreeSet<Node> {
    let mut found = BTreeSet::from([head, latch]);
    let mut left = if latch == head { Vec::new() } else { vec![latch] };
    while let Some(block) = left.pop() {
        let before = into.get(block.index()).into_iter().flatten();
        left.extend(before.filter(|from| found.insert(**from)).copied().collect::<Vec<_>>());
    }
    found
}
