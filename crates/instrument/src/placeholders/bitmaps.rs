//! Bitmaps of test vectors, by which clang measures MC/DC (`-fcoverage-mcdc`), taken out like counters.
//!
//! A decision of several conditions has a bit for each vector of outcomes. At its end the bit is set (`atomicrmw or`), unless it was
//! found to be set already by a load before, which spares the atomic operation. Here every bit is a counter more, behind those of its
//! function: which vectors were executed follows from how often. The check goes: of a bitmap that is not there no bit is ever set.
//!
//! A vector that is one constant where it is noted follows from the paths. One that is computed (in an optimised decision without
//! branches, or by a variable without optimisation) is counted: bit `b` of the byte at `d` behind the unit's counters is word
//! `first + 8 d + b`, whatever function it is of, since the optimiser may have merged decisions of several.

use super::llvm_profile::fixed_element;
use super::{PlaceholderError, passes_address_on, unknown_use};
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::phis;
use indexmap::IndexSet;
use llvm_sys::LLVMAtomicRMWBinOp::LLVMAtomicRMWBinOpOr;
use llvm_sys::LLVMIntPredicate::{LLVMIntEQ, LLVMIntNE};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;

/// How a bitmap is used.
#[derive(Default)]
pub struct Uses {
    /// Where bits are set.
    pub updates: IndexSet<Value>,
    /// Where it is read, to find out whether they are set.
    loads: IndexSet<Value>,
}

/// All uses of a bitmap, through whatever the optimiser has made of its address.
pub fn uses(bitmap: Value) -> Result<Uses, PlaceholderError> {
    let (mut uses, mut seen, mut stack) = (Uses::default(), IndexSet::from([bitmap]), vec![bitmap]);
    while let Some(value) = stack.pop() {
        for user in value.users() {
            if is_update(user, value) {
                uses.updates.insert(user);
            } else if user.is_instruction() && user.is(LLVMOpcode::LLVMLoad) && user.integer_width().is_some() {
                uses.loads.insert(user);
            } else if passes_address_on(user) {
                stack.extend(seen.insert(user).then_some(user));
            } else {
                return Err(unknown_use(user));
            }
        }
    }
    Ok(uses)
}

impl Uses {
    /// Takes the checks out.
    pub fn fold_checks(&self, module: Module) {
        self.loads.iter().for_each(|load| fold(module, *load, 0));
    }
}

/// Whether an instruction sets bits of a bitmap and nothing else depends on it.
fn is_update(user: Value, address: Value) -> bool {
    let is_atomic = !llvm!(LLVMIsAAtomicRMWInst(user.0)).is_null();
    is_atomic && user.operand(0) == address && user.users().next().is_none() && llvm!(LLVMGetAtomicRMWBinOp(user.0)) == LLVMAtomicRMWBinOpOr
}

/// Replaces an instruction by a constant, and what follows from it.
fn fold(module: Module, value: Value, constant: u64) {
    let branches: IndexSet<Value> = value.users().filter(|user| is_branch(*user)).collect();
    branches.into_iter().for_each(|branch| fold_branch(module, branch, constant != 0));
    // Asked again each time: folding one user may fold, and delete, another.
    while let Some((user, constant)) = value.users().find_map(|user| Some((user, result(user, value, constant)?))) {
        fold(module, user, constant);
    }
    value.replace_uses(Value(llvm!(LLVMConstInt(value.kind(), constant, 0))));
    // SAFETY: it has no users, and callers are done with it.
    unsafe { value.erase() };
}

/// What an instruction gives where one of its operands is a constant; nothing if it is not one that checks bits.
fn result(user: Value, of: Value, constant: u64) -> Option<u64> {
    if !user.is_instruction() {
        return None;
    }
    let other = || if user.operand(0) == of { user.operand(1) } else { user.operand(0) };
    match (user.opcode(), constant) {
        (LLVMOpcode::LLVMAnd, 0) => Some(0),
        (LLVMOpcode::LLVMLShr | LLVMOpcode::LLVMTrunc | LLVMOpcode::LLVMZExt, 0) if user.operand(0) == of => Some(0),
        (LLVMOpcode::LLVMXor, 0 | 1) if user.integer_width() == Some(1) && other().as_integer().is_some() => Some(1 - constant),
        (LLVMOpcode::LLVMICmp, 0) => {
            // The other side is 0, or a bit.
            let equal = other().as_integer() == Some(0);
            match llvm!(LLVMGetICmpPredicate(user.0)) {
                LLVMIntEQ => Some(u64::from(equal)),
                LLVMIntNE => Some(u64::from(!equal)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_branch(user: Value) -> bool {
    user.is_instruction() && user.is(LLVMOpcode::LLVMBr) && user.successors().len() == 2
}

/// Makes a jump of a branch whose condition is known.
fn fold_branch(module: Module, branch: Value, condition: bool) {
    let (block, successors) = (branch.block(), branch.successors());
    let (live, dead): (Block, Block) = if condition { (successors[0], successors[1]) } else { (successors[1], successors[0]) };
    Builder::before(module, branch, branch.location()).jump(live);
    // SAFETY: the block has its new end already, and the caller goes on to other users.
    unsafe { branch.erase() };
    if live != dead {
        phis::rebuild(module, dead, |old| old.into_iter().filter(|(_, from)| *from != block).collect());
    }
}

/// The numbers of the bits that an update sets, if it is one constant of one bitmap; and the bitmap.
pub fn fixed_bits(update: Value) -> Option<(Value, Vec<u32>)> {
    let mask = update.operand(1).as_integer()? as u8;
    let (bitmap, byte) = fixed_element(update.operand(0), 1)?;
    Some((bitmap, (0..8).filter(|bit| mask >> bit & 1 == 1).map(|bit| byte * 8 + bit).collect()))
}

/// The word that counts a computed bit, given the address of the unit's counters, behind which its bitmaps are taken to lie.
pub fn computed_word(builder: &Builder, update: Value, counters: Value, first: u64) -> Value {
    let byte = builder.subtract(builder.number_of(update.operand(0)), builder.number_of(counters));
    let of_byte = builder.multiply(byte, builder.constant(8));
    let bit = builder.count_zeros("llvm.cttz", builder.widen(update.operand(1)));
    builder.add(builder.add(of_byte, bit), builder.constant(first))
}
