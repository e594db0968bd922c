//! Copies the blocks after an edge for that edge alone (tail duplication along a path).
//!
//! After Mueller and Whalley, "Avoiding conditional branches by code replication" (PLDI 1995): if an edge determines the outcome of a later
//! branch, the blocks from the edge to the branch are copied, and the edge leads to the copy. All other edges lead to the originals.
//! Invariant: the copy is only entered by that edge, which therefore dominates it; the rest of the function is unchanged.

use super::TransformTarget;
use crate::llvm::{Block, Module, Value};
use crate::phis;
use crate::shape::predecessors;
use crate::versions::copies::{CopiedLinePolicy, CopyMapping};
use crate::versions::ssa::{VersionDefinitions, VersionSsaRepair};
use crate::weights::set_target_weights;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use trodden_unit::transformations::{CopyEdgeWeights, PathCopy};

/// Copies the blocks if possible. Returns true if they were copied.
pub fn copy_blocks(place: TransformTarget, copy: &PathCopy) -> bool {
    let Some((from, blocks)) = find_edge_source_and_blocks(place, copy) else { return false };
    let Some(first) = blocks.first().copied().filter(|_| blocks.iter().all(|b| can_be_copied(*b))) else { return false };
    let terminator = from.terminator();
    let successors: Vec<usize> = terminator.successors().iter().enumerate().filter(|(_, to)| **to == first).map(|(i, _)| i).collect();
    let leads_there = matches!(terminator.opcode(), LLVMOpcode::LLVMBr | LLVMOpcode::LLVMSwitch) && !successors.is_empty();
    // If the block has no other predecessor, a copy would gain nothing.
    let alone = blocks.len() == 1 && predecessors(first).iter().all(|b| *b == from);
    if !leads_there || alone || blocks.contains(&from) {
        return false;
    }
    let copies = CopyMapping::new(place.module, &blocks, place.function, &IndexMap::new(), CopiedLinePolicy::Keep);
    let back = redirect_back_edges(&blocks, &copies);
    successors.iter().for_each(|at| terminator.set_successor(*at, copies.block(first)));
    extend_successor_phis(place.module, &blocks, &copies, &back);
    remove_stale_entries(place.module, &blocks, &copies);
    merge_copied_values(place, &blocks, &copies);
    set_split_weights(place, &copies, &copy.weights);
    true
}

/// Returns the source block of the edge and the blocks to copy; `None` if the plan does not fit the function.
fn find_edge_source_and_blocks(place: TransformTarget, copy: &PathCopy) -> Option<(Block, Vec<Block>)> {
    let edge = place.cfg.graph.get_edge(copy.entry)?;
    let first = copy.blocks.first().filter(|b| **b == edge.to)?;
    let mut seen = IndexSet::from([*first]);
    let distinct = copy.blocks[1..].iter().all(|b| seen.insert(*b));
    let blocks = copy.blocks.iter().map(|b| place.cfg.block(*b)).collect::<Option<Vec<_>>>()?;
    distinct.then_some((place.cfg.block(edge.from)?, blocks))
}

/// Returns true if a block may be copied: it contains no call that forbids it, no token and no landing pad, and is not the target of an
/// indirect branch.
fn can_be_copied(block: Block) -> bool {
    let may = |i: Value| {
        let refuses = i.is_call() && (i.call_has_attribute("noduplicate") || i.call_has_attribute("convergent"));
        let strange = matches!(i.opcode(), LLVMOpcode::LLVMAlloca | LLVMOpcode::LLVMCallBr | LLVMOpcode::LLVMIndirectBr);
        !refuses && !strange && !i.is_token()
    };
    block.landing_pad().is_none()
        && block.instructions().all(may)
        && !predecessors(block).is_empty()
        && predecessors(block).iter().all(|b| !b.terminator().is(LLVMOpcode::LLVMIndirectBr) && !b.terminator().is(LLVMOpcode::LLVMCallBr))
}

/// Makes edges of copies lead to the originals if they go backwards in the order of blocks. Returns, for each copied block, the originals
/// to which its copy leads.
fn redirect_back_edges(blocks: &[Block], copies: &CopyMapping) -> IndexMap<Block, Vec<Block>> {
    let place: IndexMap<Block, usize> = blocks.iter().enumerate().map(|(i, b)| (*b, i)).collect();
    let mut out: IndexMap<Block, Vec<Block>> = IndexMap::new();
    for (at, block) in blocks.iter().enumerate() {
        let terminator = copies.block(*block).terminator();
        for (successor, to) in block.terminator().successors().into_iter().enumerate() {
            if place.get(&to).is_some_and(|p| *p <= at) {
                terminator.set_successor(successor, to);
            }
            if place.get(&to).is_none_or(|p| *p <= at) {
                out.entry(*block).or_default().push(to);
            }
        }
    }
    out
}

/// Adds entries for the copies to the phi nodes of originals that are successors of copies. This rebuilds phi nodes, which may be incoming
/// values of other phi nodes.
fn extend_successor_phis(module: Module, blocks: &[Block], copies: &CopyMapping, out: &IndexMap<Block, Vec<Block>>) {
    let (mut updated, mut was) = (IndexSet::new(), IndexMap::<Value, Value>::new());
    for block in blocks {
        for &to in out.get(block).into_iter().flatten() {
            if !updated.insert((*block, to)) {
                continue;
            }
            let of_copy = |value: Value| {
                let first = was.get(&value).copied().unwrap_or(value);
                if copies.value(first) == first { value } else { copies.value(first) }
            };
            let replaced = phis::rebuild_phis(module, to, |mut old| {
                let new: Vec<_> = old.iter().filter(|(_, b)| b == block).map(|(v, b)| (of_copy(*v), copies.block(*b))).collect();
                old.extend(new);
                old
            });
            for (old, new) in replaced {
                let first = was.get(&old).copied().unwrap_or(old);
                was.insert(new, first);
            }
        }
    }
}

/// Removes phi node entries from blocks that are no longer predecessors, in the originals and the copies.
fn remove_stale_entries(module: Module, blocks: &[Block], copies: &CopyMapping) {
    for block in blocks.iter().flat_map(|b| [*b, copies.block(*b)]) {
        let mut left: IndexMap<Block, usize> = IndexMap::new();
        predecessors(block).into_iter().for_each(|b| *left.entry(b).or_default() += 1);
        phis::rebuild_phis(module, block, |old| {
            let mut left = left.clone();
            let mut stays = |b: &Block| left.get_mut(b).is_some_and(|n| std::mem::replace(n, n.saturating_sub(1)) > 0);
            old.into_iter().filter(|(_, b)| stays(b)).collect()
        });
    }
}

/// Repairs uses of values that have two definitions after copying.
fn merge_copied_values(place: TransformTarget, blocks: &[Block], copies: &CopyMapping) {
    let pairs: Vec<(Value, Value)> =
        blocks.iter().flat_map(|b| b.instructions().zip(copies.block(*b).instructions())).filter(|(one, _)| !one.is_void()).collect();
    let mut flow = VersionSsaRepair::new(place.module, place.function, &IndexSet::new());
    for (one, other) in pairs {
        flow.rewrite_uses(&[one, other], VersionDefinitions::Arbitrary);
    }
}

/// Sets the branch weights of originals and copies from the counts of the paths that go through each.
fn set_split_weights(place: TransformTarget, copies: &CopyMapping, weights: &[CopyEdgeWeights]) {
    let mut by_block: IndexMap<Block, Vec<(Block, CopyEdgeWeights)>> = IndexMap::new();
    for split in weights {
        let Some(edge) = place.cfg.graph.get_edge(split.edge) else { continue };
        if let (Some(from), Some(to)) = (place.cfg.block(edge.from), place.cfg.block(edge.to)) {
            by_block.entry(from).or_default().push((to, *split));
        }
    }
    for (block, successors) in by_block {
        let copy = copies.block(block);
        if copy == block {
            continue;
        }
        let of = |to: Block, count: fn(&CopyEdgeWeights) -> u64| {
            successors.iter().find(|(t, _)| *t == to || copies.block(*t) == to).map(|(_, split)| count(split))
        };
        set_target_weights(place.module, block.terminator(), |to| of(to, |p| p.kept));
        set_target_weights(place.module, copy.terminator(), |to| of(to, |p| p.copied));
    }
}
