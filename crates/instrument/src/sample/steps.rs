//! Interpreters: where does the program counter of the interpreted program jump, rather than go on to what follows?
//!
//! The pointer to the next instruction is merged where instructions are dispatched. It is known by what comes there
//! from most of them: itself, a constant further on. Where anything else comes (an operand was added, or it was
//! loaded), the interpreted program jumps, calls or returns.
//!
//! The jumps are searched for by way of phi nodes, as far as values are merged before the dispatch.

use crate::llvm::{Block, Value, llvm};
use crate::shape::predecessors;
use indexmap::IndexSet;
use llvm_sys::core::*;
use llvm_sys::{LLVMOpcode, LLVMTypeKind};

/// A `switch` with so many cases is taken for that of an interpreter. Those that distinguish characters have fewer. Three programs are the
/// same with 16; without such a rule, an interpreter executes 1 % more (docs/benchmarks/constants.md).
const MANY: usize = 48;

/// The blocks that bring a dispatch another program counter than one a constant further on; `landings` are the blocks
/// where indirect branches arrive.
pub fn jumping(landings: &[Block]) -> IndexSet<Block> {
    let mut merging: IndexSet<Block> = landings.iter().copied().collect();
    merging.extend(landings.iter().flat_map(|l| predecessors(*l)));
    let counters = merging.iter().flat_map(|b| b.phis().collect::<Vec<_>>()).filter(|p| is_pointer(*p));
    counters.map(Origins::from_counter).filter(|o| o.advances).flat_map(|o| o.jumps).collect()
}

/// Of an interpreter that is one `switch` in a loop: the blocks that lead to the end of the loop and bring it the
/// program counter a constant further on. None if there is no such counter, or if nothing else comes there.
pub fn going_on(latch: Block, head: Block) -> Vec<Block> {
    let brings = |counter: Value| {
        let (merged, moved) = without_constants(counter.incoming_from(latch)?);
        (is(merged, LLVMOpcode::LLVMPHI) && merged.block() == latch).then_some((counter, merged, moved))
    };
    let goes_on = |counter: Value, value: Value, from: Block, moved: bool| {
        let origins = Origins::from(counter, vec![(value, from, moved)]);
        origins.advances && origins.jumps.is_empty()
    };
    let can_be_led_elsewhere = |b: &Block| matches!(b.terminator().opcode(), LLVMOpcode::LLVMBr | LLVMOpcode::LLVMSwitch);
    let counters = head.phis().filter(|p| is_pointer(*p) && decides(*p)).filter_map(brings);
    let mut found = counters.map(|(counter, merged, moved)| {
        let (on, other): (Vec<_>, Vec<_>) = merged.incoming().into_iter().partition(|(value, from)| goes_on(counter, *value, *from, moved));
        let on: Vec<Block> = on.into_iter().map(|(_, from)| from).collect();
        if other.is_empty() || !on.iter().all(can_be_led_elsewhere) { Vec::new() } else { on }
    });
    found.find(|on| !on.is_empty()).unwrap_or_default()
}

/// Whether what a pointer points to decides between many successors.
fn decides(counter: Value) -> bool {
    let mut seen = IndexSet::from([counter]);
    let mut stack = vec![counter];
    while let Some(value) = stack.pop() {
        for user in value.users().filter(|u| u.is_instruction()) {
            match user.opcode() {
                LLVMOpcode::LLVMSwitch if user.successors().into_iter().collect::<IndexSet<_>>().len() >= MANY => return true,
                LLVMOpcode::LLVMGetElementPtr | LLVMOpcode::LLVMLoad if user.operand(0) == value => {
                    stack.extend(Some(user).filter(|u| seen.insert(*u)))
                }
                LLVMOpcode::LLVMZExt | LLVMOpcode::LLVMSExt | LLVMOpcode::LLVMTrunc | LLVMOpcode::LLVMAnd => {
                    stack.extend(Some(user).filter(|u| seen.insert(*u)));
                }
                _ => {}
            }
        }
    }
    false
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
    fn from_counter(counter: Value) -> Origins {
        Origins::from(counter, counter.incoming().into_iter().map(|(value, from)| (value, from, false)).collect())
    }

    /// The same of some values: `stack` has them, the blocks from which they come, and whether a constant is added to them on the way.
    fn from(counter: Value, mut stack: Vec<(Value, Block, bool)>) -> Origins {
        let mut origins = Origins::default();
        let mut seen = IndexSet::from([counter]);
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
                stack.extend([1, 2].map(|i| (root.operand(i), from, moved)));
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
    while is(root, LLVMOpcode::LLVMGetElementPtr) && root.operands().skip(1).all(Value::is_constant) {
        (root, further) = (root.operand(0), true);
    }
    (root, further)
}

fn is(value: Value, opcode: LLVMOpcode) -> bool {
    value.is_instruction() && value.is(opcode)
}

fn is_pointer(value: Value) -> bool {
    llvm!(LLVMGetTypeKind(value.kind())) == LLVMTypeKind::LLVMPointerTypeKind
}
