//! Finds the blocks where an interpreted program jumps rather than advancing to the next instruction.
//!
//! The pointer to the next instruction is a phi node where instructions are dispatched. It is recognised by its most frequent update:
//! itself plus a constant. Any other incoming value (an operand was added, or the pointer was loaded) is a jump, call or return. The search
//! follows phi nodes before the dispatch.

use crate::host::type_kind;
use crate::llvm::{Block, Value};
use crate::shape::predecessors;
use indexmap::IndexSet;
use llvm_sys::{LLVMOpcode, LLVMTypeKind};

/// A `switch` with at least this many cases is assumed to be an interpreter's dispatch, because a `switch` on characters has fewer. Three
/// programs compile to the same code with 16; without the limit, an interpreter executes 1 % more instructions
/// (docs/benchmarks/constants.md).
const MIN_INTERPRETER_CASES: usize = 48;

/// Returns the blocks that update the interpreted program's counter other than by adding a constant. `landings` are the targets of indirect
/// branches.
pub fn blocks_jumping_in_interpreter(landings: &[Block]) -> IndexSet<Block> {
    let mut merging: IndexSet<Block> = landings.iter().copied().collect();
    merging.extend(landings.iter().flat_map(|l| predecessors(*l)));
    let counters = merging.iter().flat_map(|b| b.phis().collect::<Vec<_>>()).filter(|p| is_pointer(*p));
    counters.map(CounterOrigins::from_counter).filter(|o| o.advances).flat_map(|o| o.jumps).collect()
}

/// Returns the predecessors of the latch that advance the interpreted program's counter by a constant, for an interpreter's loop around a
/// `switch`. The result is empty if the loop has no such counter, if the counter is never updated otherwise, or if a predecessor cannot be
/// redirected.
pub fn blocks_advancing_interpreter(latch: Block, head: Block) -> Vec<Block> {
    let update_of = |counter: Value| {
        let (merged, has_offset) = strip_constant_offsets(counter.incoming_from(latch)?);
        (has_opcode(merged, LLVMOpcode::LLVMPHI) && merged.block() == latch).then_some((counter, merged, has_offset))
    };
    let advances = |counter: Value, value: Value, from: Block, has_offset: bool| {
        let origins = CounterOrigins::collect(counter, vec![(value, from, has_offset)]);
        origins.advances && origins.jumps.is_empty()
    };
    let can_be_led_elsewhere = |b: &Block| matches!(b.terminator().opcode(), LLVMOpcode::LLVMBr | LLVMOpcode::LLVMSwitch);
    let counters = head.phis().filter(|p| is_pointer(*p) && points_to_interpreted_instruction(*p)).filter_map(update_of);
    let mut found = counters.map(|(counter, merged, has_offset)| {
        let (on, other): (Vec<_>, Vec<_>) =
            merged.incoming().into_iter().partition(|(value, from)| advances(counter, *value, *from, has_offset));
        let on: Vec<Block> = on.into_iter().map(|(_, from)| from).collect();
        if other.is_empty() || !on.iter().all(can_be_led_elsewhere) { Vec::new() } else { on }
    });
    found.find(|on| !on.is_empty()).unwrap_or_default()
}

/// Returns true if a value loaded through the pointer controls a `switch` with many successors.
fn points_to_interpreted_instruction(counter: Value) -> bool {
    let mut seen = IndexSet::from([counter]);
    let mut stack = vec![counter];
    while let Some(value) = stack.pop() {
        for user in value.users().filter(|u| u.is_instruction()) {
            match user.opcode() {
                LLVMOpcode::LLVMSwitch if user.successors().into_iter().collect::<IndexSet<_>>().len() >= MIN_INTERPRETER_CASES => {
                    return true;
                }
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

#[derive(Default)]
struct CounterOrigins {
    /// True if one of the values is the phi node itself plus a nonzero constant.
    advances: bool,
    /// The blocks from which all other values come.
    jumps: Vec<Block>,
}

impl CounterOrigins {
    fn from_counter(counter: Value) -> CounterOrigins {
        CounterOrigins::collect(counter, counter.incoming().into_iter().map(|(value, from)| (value, from, false)).collect())
    }

    /// Collects the origins of the values on `stack`. Each value comes with its block, and with a flag that tells whether a constant was
    /// added on the way.
    fn collect(counter: Value, mut stack: Vec<(Value, Block, bool)>) -> CounterOrigins {
        let mut origins = CounterOrigins::default();
        let mut seen = IndexSet::from([counter]);
        while let Some((value, from, has_offset)) = stack.pop() {
            let (root, further) = strip_constant_offsets(value);
            let has_offset = has_offset || further;
            if root == counter {
                origins.advances |= has_offset;
            } else if has_opcode(root, LLVMOpcode::LLVMPHI) {
                if seen.insert(root) {
                    stack.extend(root.incoming().into_iter().map(|(value, from)| (value, from, has_offset)));
                }
            } else if has_opcode(root, LLVMOpcode::LLVMSelect) {
                stack.extend([1, 2].map(|i| (root.operand(i), from, has_offset)));
            } else {
                origins.jumps.push(from);
            }
        }
        origins
    }
}

/// Returns the base of an address without constant offsets, and whether it had any.
fn strip_constant_offsets(address: Value) -> (Value, bool) {
    let (mut root, mut further) = (address, false);
    while has_opcode(root, LLVMOpcode::LLVMGetElementPtr) && root.operands().skip(1).all(Value::is_constant) {
        (root, further) = (root.operand(0), true);
    }
    (root, further)
}

fn has_opcode(value: Value, opcode: LLVMOpcode) -> bool {
    value.is_instruction() && value.is(opcode)
}

fn is_pointer(value: Value) -> bool {
    type_kind(value.kind()) == LLVMTypeKind::LLVMPointerTypeKind
}
