//! Equal phi nodes where calls that may unwind go on, and where they unwind to.
//!
//! LLVM's code generation (up to 22 at least) lowers a phi node to copies at the ends of the blocks before it. For a
//! landing pad they must stand in front of the call; for where the call comes back they stand behind it. But of two phi
//! nodes that merge the same values from the same blocks only the first one gets copies (`PHIElimination`, identical
//! phi nodes of critical edges): if that is the one behind the call, the landing pad reads a register that was never
//! written. Compilers hardly ever make such identical phis. Merging a register, or values of two versions of the code,
//! wherever two such calls lead makes them all the time.
//!
//! So one of the successors gets a block of its own, which holds an empty piece of assembly, lest it be removed: it costs
//! no instruction, and the identical phis are none any more.

use crate::llvm::{Block, Builder, Module, Value};
use crate::phis;
use crate::shape::{new_block_behind, predecessors};
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;

/// Sees to it that no block to which calls unwind, or assembly jumps, has a phi node that is equal to one of another
/// block behind the same calls.
pub fn split(module: Module, function: Value) {
    let merging: Vec<Block> = function.blocks().filter(|b| b.phis().next().is_some()).collect();
    for block in merging {
        let from: IndexSet<Block> = predecessors(block).into_iter().collect();
        let Some(&call) = from.iter().find(|b| is_left_early(b.terminator(), block)) else { continue };
        for (successor, other) in call.terminator().successors().into_iter().enumerate() {
            let same_calls = || predecessors(other).into_iter().collect::<IndexSet<Block>>() == from;
            if other != block && block.phis().any(|phi| other.phis().any(|duplicate| are_identical(phi, duplicate))) && same_calls() {
                detour(module, call, successor, other);
            }
        }
    }
}

/// Whether control leaves for a block from within the terminator: by unwinding, or by a jump of assembly.
fn is_left_early(terminator: Value, to: Block) -> bool {
    let successors = terminator.successors();
    match terminator.opcode() {
        LLVMOpcode::LLVMInvoke => successors.get(1) == Some(&to),
        LLVMOpcode::LLVMCallBr => successors[1..].contains(&to),
        _ => false,
    }
}

/// Whether two phi nodes merge the same values from the same blocks.
fn are_identical(a: Value, b: Value) -> bool {
    let merged = |phi: Value| phi.incoming().into_iter().map(|(value, block)| (block, value.0)).collect::<IndexSet<_>>();
    a.kind() == b.kind() && merged(a) == merged(b)
}

/// Lets one edge of a terminator go through a block of its own.
fn detour(module: Module, call: Block, successor: usize, to: Block) {
    let between = new_block_behind(module, call);
    let terminator = call.terminator();
    let builder = Builder::at_end(module, between, terminator.location());
    builder.assembly(module.void(), "", "", &[]);
    builder.jump(to);
    terminator.set_successor(successor, between);
    phis::rename(module, to, call, between);
}
