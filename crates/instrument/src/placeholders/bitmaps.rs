//! Removes the bitmaps by which clang measures MC/DC coverage (`-fcoverage-mcdc`), as counters are removed.
//!
//! A decision has one bit for each combination of its conditions' outcomes (a test vector). At the decision's end the bit is set
//! (`atomicrmw or`), unless a preceding load shows that it is set already. Here each bit becomes a counter, after the function's other
//! counters, and the checks are removed. If the vector is constant at its update, paths determine the counter. A computed vector (of an
//! optimised decision without branches, or held in a variable) is counted: bit `b` of the byte at offset `d` from the unit's counters is
//! counted in word `first + 8 d + b`. This does not depend on the function, since the optimiser may have merged decisions of different
//! functions.

use super::llvm_profile::find_constant_element_index;
use super::{PlaceholderError, passes_on_address, unsupported_use_error};
use crate::llvm::{Block, Builder, Module, Value};
use crate::phis;
use indexmap::IndexSet;
use llvm_sys::LLVMAtomicRMWBinOp::LLVMAtomicRMWBinOpOr;
use llvm_sys::LLVMIntPredicate::{LLVMIntEQ, LLVMIntNE};
use llvm_sys::LLVMOpcode;

#[derive(Default)]
pub struct ConditionCoverageBitmapUses {
    pub updates: IndexSet<Value>,
    /// Loads by which the code checks whether bits are already set.
    loads: IndexSet<Value>,
}

/// Returns all uses of a bitmap, following its address through other instructions.
pub fn find_bitmap_uses(bitmap: Value) -> Result<ConditionCoverageBitmapUses, PlaceholderError> {
    let (mut uses, mut seen, mut stack) = (ConditionCoverageBitmapUses::default(), IndexSet::from([bitmap]), vec![bitmap]);
    while let Some(value) = stack.pop() {
        for user in value.users() {
            if is_bitmap_update(user, value) {
                uses.updates.insert(user);
            } else if user.is_instruction() && user.is(LLVMOpcode::LLVMLoad) && user.integer_width().is_some() {
                uses.loads.insert(user);
            } else if passes_on_address(user) {
                stack.extend(seen.insert(user).then_some(user));
            } else {
                return Err(unsupported_use_error(user));
            }
        }
    }
    Ok(uses)
}

impl ConditionCoverageBitmapUses {
    pub fn fold_bitmap_checks(&self, module: Module) {
        self.loads.iter().for_each(|load| fold_users_of_constant(module, *load, 0));
    }
}

/// Returns true if an instruction sets bits of the bitmap at `address` without using the old value.
fn is_bitmap_update(user: Value, address: Value) -> bool {
    user.atomic_operation() == Some(LLVMAtomicRMWBinOpOr) && user.operand(0) == address && user.is_unused()
}

/// Replaces an instruction with a constant, and does the same with all users that thereby become constant.
fn fold_users_of_constant(module: Module, value: Value, constant: u64) {
    let branches: IndexSet<Value> = value.users().filter(|user| is_conditional_branch(*user)).collect();
    branches.into_iter().for_each(|branch| fold_branch(module, branch, constant != 0));
    // Search the users again each time, because folding one user may delete another.
    while let Some((user, constant)) = value.users().find_map(|user| Some((user, fold_to_constant(user, value, constant)?))) {
        fold_users_of_constant(module, user, constant);
    }
    value.replace_uses(value.kind().unsigned(constant));
    // SAFETY: the instruction has no users left, and callers do not use it afterwards.
    unsafe { value.erase() };
}

/// Returns the result of an instruction one of whose operands, `of`, is a constant; `None` unless the instruction is part of a check of
/// bits.
fn fold_to_constant(user: Value, of: Value, constant: u64) -> Option<u64> {
    if !user.is_instruction() {
        return None;
    }
    let other = || if user.operand(0) == of { user.operand(1) } else { user.operand(0) };
    match (user.opcode(), constant) {
        (LLVMOpcode::LLVMAnd, 0) => Some(0),
        (LLVMOpcode::LLVMLShr | LLVMOpcode::LLVMTrunc | LLVMOpcode::LLVMZExt, 0) if user.operand(0) == of => Some(0),
        (LLVMOpcode::LLVMXor, 0 | 1) if user.integer_width() == Some(1) && other().as_integer().is_some() => Some(1 - constant),
        (LLVMOpcode::LLVMICmp, 0) => {
            // The other operand is either 0 or a single bit.
            let equal = other().as_integer() == Some(0);
            match user.integer_predicate()? {
                LLVMIntEQ => Some(u64::from(equal)),
                LLVMIntNE => Some(u64::from(!equal)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_conditional_branch(user: Value) -> bool {
    user.is_instruction() && user.is(LLVMOpcode::LLVMBr) && user.successors().len() == 2
}

/// Replaces a branch whose condition is known with a jump.
fn fold_branch(module: Module, branch: Value, condition: bool) {
    let (block, successors) = (branch.block(), branch.successors());
    let (live, dead): (Block, Block) = if condition { (successors[0], successors[1]) } else { (successors[1], successors[0]) };
    Builder::before(module, branch, branch.location()).jump(live);
    // SAFETY: the block has its new terminator, and the caller goes on with other users.
    unsafe { branch.erase() };
    if live != dead {
        phis::rebuild_phis(module, dead, |old| old.into_iter().filter(|(_, from)| *from != block).collect());
    }
}

/// Returns the bitmap and the numbers of the bits that an update sets, if both are constant.
pub fn constant_bits(update: Value) -> Option<(Value, Vec<u32>)> {
    let mask = update.operand(1).as_integer()? as u8;
    let (bitmap, byte) = find_constant_element_index(update.operand(0), 1)?;
    Some((bitmap, (0..8).filter(|bit| mask >> bit & 1 == 1).map(|bit| byte * 8 + bit).collect()))
}

/// Emits the index of the counter for a bit that is computed at run time. Addresses of bitmaps have become offsets from the unit's
/// counters.
pub fn emit_bit_counter_index(builder: &Builder, update: Value, counters: Value, first: u64) -> Value {
    let byte = builder.subtract(builder.pointer_to_int(update.operand(0)), builder.pointer_to_int(counters));
    let of_byte = builder.multiply(byte, builder.constant(8));
    let bit = builder.count_zeros("llvm.cttz", builder.zero_extend(update.operand(1)));
    builder.add(builder.add(of_byte, bit), builder.constant(first))
}
