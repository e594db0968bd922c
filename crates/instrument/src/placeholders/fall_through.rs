//! Restores the order of blocks after counters have been removed.

use crate::llvm::{Block, Value};
use crate::shape::predecessors;
use llvm_sys::LLVMOpcode;

/// Moves blocks that have become empty out of the way between a block and its fall-through successor. Cases of a `switch` that fall through
/// start with such blocks. LLVM keeps blocks that fall through, but duplicates short blocks that end with a jump: each case would get a
/// copy of all later cases.
pub fn restore_fall_through(function: Value) {
    let blocks: Vec<Block> = function.blocks().collect();
    for (at, block) in blocks.iter().enumerate() {
        let [next] = block.terminator().successors()[..] else { continue };
        let between = blocks[at + 1..].iter().take_while(|b| **b != next && find_target_of_empty_block(**b) == Some(next)).count();
        if between == 0 || blocks.get(at + 1 + between) != Some(&next) {
            continue;
        }
        for moved in &blocks[at + 1..=at + between] {
            if let [from] = predecessors(*moved)[..] {
                moved.move_after(from);
            }
        }
    }
}

/// Returns the target of a block that contains only a jump.
fn find_target_of_empty_block(block: Block) -> Option<Block> {
    let first = block.instructions().next().filter(|i| i.is(LLVMOpcode::LLVMBr))?;
    let [to] = first.successors()[..] else { return None };
    Some(to)
}
