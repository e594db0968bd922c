//! Interpreters: where does the program counter of the interpreted program jump, rather than go on to what follows?
//!
//! The pointer to the next instruction is merged where instructions are dispatched. It is known by what comes there from most of them: itself, a constant further on. Where anything else comes
//! (an operand was added, or it was loaded), the interpreted program jumps, calls or returns.
//!
//! The jumps are searched for by way of phi nodes, as far as values are merged before the dispatch.

use crate::llvm::{Block, Value, llvm};
use crate::shape::predecessors;
use llvm_sys::core::*;
use llvm_sys::{LLVMOpcode, LLVMTypeKind};
use std::collections::HashSet;

/// The blocks that bring a dispatch another program counter than one a constant further on; `landings` are the blocks where computed jumps arrive.
pub fn jumping(landings: &[Block]) -> HashSet<Block> {
    let mut merging: HashSet<Block> = landings.iter().copied().collect();
    merging.extend(landings.iter().flat_map(|l| predecessors(*l)));
    let counters = merging.iter().flat_map(|b| b.phis().collect::<Vec<_>>()).filter(|p| is_pointer(*p));
    counters.map(Origins::of).filter(|o| o.advances).flat_map(|o| o.jumps).collect()
}

/// Where the values of a phi node come from.
#[derive(Default)]
struct Origins {
    /// Some value is the node's own, a constant other than 0 further on.
    advances: bool,
    /// The blocks from which others come.
    jumps: Vec<Block>,
}

impl Origins {
    fn of(counter: Value) -> Origins {
        let mut origins = Origins::default();
        let mut seen = HashSet::from([counter]);
        // Values, the blocks from which they come, and whether a constant is added to them on the way.
        let mut stack: Vec<(Value, Block, bool)> = counter.incoming().into_iter().map(|(value, from)| (value, from, false)).collect();
        while let Some((value, from, moved)) = stack.pop() {
            let (root, further) = without_constants(value);
            let moved = moved || further;
            if root == counter {
                origins.advances |= moved;
            } else if is(root, LLVMOpcode::LLVMPHI) {
                if seen.insert(root) {
                    stack.extend(root.incoming().into_iter().map(|(value, from)| (value, from, moved)));
                }
            } else if is(root, LLVMOpcode::LLVMSelect) {
                stack.extend([1, 2].map(|i| (operand(root, i), from, moved)));
            } else {
                origins.jumps.push(from);
            }
        }
        origins
    }
}

/// What an address is a constant away from, and whether it is.
fn without_constants(address: Value) -> (Value, bool) {
    let (mut root, mut further) = (address, false);
    let is_constant = |value: Value, index: u32| llvm!(LLVMIsConstant(operand(value, index).0)) != 0;
    while is(root, LLVMOpcode::LLVMGetElementPtr) && (1..llvm!(LLVMGetNumOperands(root.0)) as u32).all(|i| is_constant(root, i)) {
        (root, further) = (operand(root, 0), true);
    }
    (root, further)
}

fn operand(instruction: Value, index: u32) -> Value {
    Value(llvm!(LLVMGetOperand(instruction.0, index)))
}

fn is(value: Value, opcode: LLVMOpcode) -> bool {
    !llvm!(LLVMIsAInstruction(value.0)).is_null() && value.is(opcode)
}

fn is_pointer(value: Value) -> bool {
    llvm!(LLVMGetTypeKind(value.kind())) == LLVMTypeKind::LLVMPointerTypeKind
}
