//! The layout of blocks in which counters were taken out.

use crate::llvm::{Block, Value, llvm};
use crate::shape::predecessors;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;

/// Moves blocks that held nothing but counters out from between two blocks of which one goes on to the other, to the
/// block from which control comes to them. Where cases of a `switch` fall through, such a block stands at the head of
/// each. LLVM leaves a block that falls through to the next as it is, but duplicates a short one that jumps into all
/// that go on to it: each case would get a copy of all later cases.
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
