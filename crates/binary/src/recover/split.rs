//! Splits functions that are entered at several addresses, as hand-written assembly and the code of GHC are, so that each function has one
//! entry.
//!
//! A block belongs to the entry that dominates it. A block that several entries reach without a common dominator becomes the entry of a
//! function of its own, as do blocks that no entry reaches. Transfers of control between the new functions become tail calls.

use super::explore::Exploration;
use crate::graph::*;
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_flow::dominators::immediate_dominators;

/// Splits a function. Returns a function with landing pads unchanged, since the calls of one new function may unwind into another.
pub fn split_at_entries(function: FunctionGraph, explored: &Exploration) -> Vec<FunctionGraph> {
    if function.other_entries.is_empty() || !function.landing_pads.is_empty() {
        return vec![function];
    }
    let owners = find_owners(&function);
    let mut blocks_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    (0..).zip(&owners).for_each(|(block, &owner)| blocks_of.entry(owner).or_default().push(block));
    let main = function.block_starting_at(function.entry).map_or(0, |block| block.0);
    let mut doubts_of: BTreeMap<u32, Vec<Uncertainty>> = BTreeMap::new();
    for doubt in &function.uncertain {
        // Doubts about code outside all blocks belong to the function that keeps the entry.
        let owner = function.block_containing(doubt.address).map_or(main, |block| owners[block.0 as usize]);
        doubts_of.entry(owner).or_default().push(doubt.clone());
    }
    let split = |(&head, blocks): (&u32, &Vec<u32>)| {
        let entry = function.blocks[head as usize].start;
        let doubts = doubts_of.get(&head).cloned().unwrap_or_default();
        let mut part = extract_part(&function, &owners, blocks, doubts);
        part.entry = entry;
        part.has_symbol = explored.known.symbols.contains_key(&entry);
        part.name = match explored.known.names.get(&entry) {
            Some(name) => name.clone(),
            None if function.has_symbol && entry > function.entry => format!("{}+{:#x}", function.name, entry - function.entry),
            None => format!("sub_{entry:x}"),
        };
        part.is_address_taken = explored.address_taken.contains(&entry);
        part.returns &= !explored.known.never_returning.contains(&entry);
        part
    };
    blocks_of.iter().map(split).collect()
}

/// Returns, for each block, the block that is the entry of its new function.
fn find_owners(function: &FunctionGraph) -> Vec<u32> {
    let count = function.blocks.len();
    let mut next: Vec<Vec<u32>> = vec![Vec::new(); count + 1];
    function.edges.iter().for_each(|edge| next[edge.from.0 as usize].push(edge.to.0));
    // An artificial block leads to all entries.
    let root = count as u32;
    let entries = [function.entry].into_iter().chain(function.other_entries.iter().copied());
    next[count] = entries.filter_map(|entry| Some(function.block_starting_at(entry)?.0)).collect();
    let mut reached = vec![false; count];
    let mut pending = next[count].clone();
    for first in 0..=root {
        while let Some(block) = pending.pop() {
            if !std::mem::replace(&mut reached[block as usize], true) {
                pending.extend(&next[block as usize]);
            }
        }
        if first < root && !reached[first as usize] {
            next[count].push(first);
            pending.push(first);
        }
    }
    let dominators = immediate_dominators(&next, root);
    let mut owners: Vec<Option<u32>> = vec![None; count];
    for block in 0..root {
        let mut chain = Vec::new();
        let mut at = block;
        let owner = loop {
            if let Some(owner) = owners[at as usize] {
                break owner;
            }
            chain.push(at);
            match dominators[at as usize] {
                Some(above) if above != root => at = above,
                _ => break at,
            }
        };
        chain.into_iter().for_each(|block| owners[block as usize] = Some(owner));
    }
    owners.into_iter().map(|owner| owner.expect("each block has an owner")).collect()
}

/// Builds the function that consists of `blocks`, which is ascending. The facts about its entry are missing.
fn extract_part(function: &FunctionGraph, owners: &[u32], blocks: &[u32], uncertain: Vec<Uncertainty>) -> FunctionGraph {
    let renumbered = |block: BlockIndex| blocks.binary_search(&block.0).ok().map(|at| BlockIndex(at as u32));
    let calls_of = |&block: &u32| function.calls_in(BlockIndex(block));
    let mut calls: Vec<CallSite> =
        blocks.iter().flat_map(calls_of).filter_map(|call| Some(CallSite { block: renumbered(call.block)?, ..call.clone() })).collect();
    let mut edges = Vec::new();
    for (index, &block) in (0..).zip(blocks) {
        let successors = function.successors(BlockIndex(block));
        let within = successors.iter().filter(|edge| owners[edge.to.0 as usize] == owners[block as usize]);
        edges.extend(within.filter_map(|e| Some(CodeEdge { from: BlockIndex(index), to: renumbered(e.to)?, kind: e.kind })));
        let site = CallSite {
            block: BlockIndex(index),
            address: function.blocks[block as usize].last,
            return_address: None,
            callee: CodeCallee::Indirect,
            kind: CallKind::ConditionalTailCall,
            returns: CallReturns::Maybe,
            landing_pad: None,
            always_lands: false,
        };
        let callees = tail_callees(function, owners, BlockIndex(block), &uncertain);
        calls.extend(callees.into_iter().map(|(callee, kind)| CallSite { callee, kind, ..site.clone() }));
    }
    edges.sort_unstable();
    calls.sort_by_key(|c| (c.address, c.block));
    let blocks: Vec<CodeBlock> = blocks.iter().map(|&block| function.blocks[block as usize]).collect();
    let is_exit = |c: &CallSite| c.kind != CallKind::Call && c.returns != CallReturns::Never;
    let is_unresolved = |u: &Uncertainty| u.doubt == GraphDoubt::UnresolvedJump;
    let returns = blocks.iter().any(|b| b.end == BlockEnd::Return) || calls.iter().any(is_exit) || uncertain.iter().any(is_unresolved);
    FunctionGraph {
        entry: 0,
        other_entries: Vec::new(),
        ranges: find_covered_ranges(&blocks),
        edges,
        calls,
        uncertain,
        returns,
        name: String::new(),
        has_symbol: false,
        landing_pads: Vec::new(),
        source: function.source,
        is_address_taken: false,
        frequencies: None,
        blocks,
    }
}

/// Returns the functions that a block of a part enters instead of other parts' blocks, and how.
fn tail_callees(function: &FunctionGraph, owners: &[u32], block: BlockIndex, uncertain: &[Uncertainty]) -> Vec<(CodeCallee, CallKind)> {
    let (successors, last) = (function.successors(block), function.block(block).last);
    let mut targets: Vec<BlockIndex> = successors.iter().map(|edge| edge.to).collect();
    targets.dedup();
    let other_tails = function.calls_in(block).filter(|call| call.kind != CallKind::Call).count();
    let kind = if targets.len() + other_tails == 1 { CallKind::TailCall } else { CallKind::ConditionalTailCall };
    targets.retain(|to| owners[to.0 as usize] != owners[block.0 as usize]);
    let callees = targets.into_iter().map(|to| (CodeCallee::Function(function.block(to).start), kind));
    // Targets of an indirect jump that are not known may be in another part.
    let is_doubtful = |u: &Uncertainty| u.address == last && u.doubt != GraphDoubt::AssumedTailCall;
    let has_others = function.block(block).end == BlockEnd::IndirectJump && uncertain.iter().any(is_doubtful);
    has_others.then_some((CodeCallee::Indirect, CallKind::ConditionalTailCall)).into_iter().chain(callees).collect()
}

/// Returns the address ranges of all blocks, ascending. Adjacent ranges are joined.
pub fn find_covered_ranges(blocks: &[CodeBlock]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match ranges.last_mut() {
            Some(last) if block.start <= last.end => last.end = last.end.max(block.end_address()),
            _ => ranges.push(block.start..block.end_address()),
        }
    }
    ranges
}
