//! Works around a miscompilation of identical phi nodes in the two successors of an `invoke`.
//!
//! LLVM's code generation (at least up to 22) lowers phi nodes to copies at the ends of the predecessors. For a landing pad the copies go
//! before the call, for the normal destination after it. Of two identical phi nodes only the first gets copies (`PHIElimination`, identical
//! phi nodes of critical edges). If the first one is that of the normal destination, the landing pad reads an uninitialised register.
//! Compilers hardly ever produce such phi nodes, but merging a path register at both destinations does. So one edge is split: it gets a
//! block with empty inline assembly, which prevents LLVM from removing the block and costs no instruction.

use crate::llvm::{Block, Builder, Module, Value};
use crate::phis;
use crate::shape::{new_block_after, predecessors};
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;

/// Splits edges so that two successors of the same calls never contain identical phi nodes if one of the successors is an unwind
/// destination or a jump target of `callbr`.
pub fn split_edges_with_identical_phis(module: Module, function: Value) {
    let merging: Vec<Block> = function.blocks().filter(|b| b.phis().next().is_some()).collect();
    for block in merging {
        let from: IndexSet<Block> = predecessors(block).into_iter().collect();
        let Some(&call) = from.iter().find(|b| is_left_before_terminator_ends(b.terminator(), block)) else { continue };
        for (successor, other) in call.terminator().successors().into_iter().enumerate() {
            let same_calls = || predecessors(other).into_iter().collect::<IndexSet<Block>>() == from;
            if other != block && block.phis().any(|phi| other.phis().any(|duplicate| are_identical(phi, duplicate))) && same_calls() {
                split_edge(module, call, successor, other);
            }
        }
    }
}

/// Returns true if control passes to block `to` from the middle of the terminator: by unwinding, or by a jump in inline assembly.
fn is_left_before_terminator_ends(terminator: Value, to: Block) -> bool {
    let successors = terminator.successors();
    match terminator.opcode() {
        LLVMOpcode::LLVMInvoke => successors.get(1) == Some(&to),
        LLVMOpcode::LLVMCallBr => successors[1..].contains(&to),
        _ => false,
    }
}

fn are_identical(a: Value, b: Value) -> bool {
    let merged = |phi: Value| phi.incoming().into_iter().map(|(value, block)| (block, value)).collect::<IndexSet<_>>();
    a.kind() == b.kind() && merged(a) == merged(b)
}

fn split_edge(module: Module, call: Block, successor: usize, to: Block) {
    let between = new_block_after(module, call);
    let terminator = call.terminator();
    let builder = Builder::at_end(module, between, terminator.location());
    builder.assembly(module.void(), "", "", &[]);
    builder.jump(to);
    terminator.set_successor(successor, between);
    phis::rename_phi_predecessor(module, to, call, between);
}
