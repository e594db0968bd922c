//! The layout of blocks in which counters were taken out.

use crate::llvm::{Block, Value, llvm};
use crate::shape::predecessors;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;

/// Moves each block that held only counters next to its predecessor, so that it no longer separates a block from the one
/// that it falls through to. Cases of a `switch` that fall through start with such blocks. LLVM keeps a block that falls
/// through, but tail-duplicates a short block that ends in a jump into its predecessors: each case would get a copy of
/// all later cases.
pub fn restore(function: Value) {
    let blocks: Vec<Block> = function.blocks().collect();
    for (at, block) in blocks.iter().enumerate() {
        let [next] = block.terminator().successors()[..] else { continue };
        let between = blocks[at + 1..].iter().take_while(|b| **b != next && jumps_only(**b) == Some(next)).count();
        if between == 0 || blocks.get(at + 1 + between) != Some(&next) {
            continue;
        }
        for moved in &blocks[at + 1..=at + between] {
            if let [from] = predecessors(*moved)[..] {
                llvm!(LLVMMoveBasicBlockAfter(moved.0, from.0));
            }
        }
    }
}

/// If a block does nothing but jump: where to.
fn jumps_only(block: Block) -> Option<Block> {
    let first = block.instructions().next().filter(|i| i.is(LLVMOpcode::LLVMBr))?;
    let [to] = first.successors()[..] else { return None };
    Some(to)
}
