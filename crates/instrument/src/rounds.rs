//! Loops that come round a constant number of times, by how their last branch counts: `for (i = 0; i < 16; i++)`, after the optimiser.
//!
//! What is known this way: the branch that closes the loop compares a phi node of the loop's head, or that plus a constant, with a constant; the phi node begins with a constant and is that sum in
//! every further round. So it takes the same values whenever the loop is entered, and they are gone through here. Other ways out of the loop are not looked at: whoever relies on the number sees
//! that there are none.

use crate::llvm::{Block, Value, llvm};
use llvm_sys::LLVMIntPredicate::{self, *};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;

/// Longer loops are not gone through.
const MOST_ROUNDS: u64 = 1 << 20;

/// An integer of so many bits, at most 64.
#[derive(Clone, Copy)]
struct Number {
    bits: u32,
    value: u64,
}

impl Number {
    fn of(value: Value) -> Option<Number> {
        if llvm!(LLVMIsAConstantInt(value.0)).is_null() {
            return None;
        }
        let bits = llvm!(LLVMGetIntTypeWidth(LLVMTypeOf(value.0)));
        (bits <= 64).then(|| Number { bits, value: llvm!(LLVMConstIntGetZExtValue(value.0)) })
    }

    fn plus(self, other: Number) -> Number {
        Number { bits: self.bits, value: self.value.wrapping_add(other.value) & (u64::MAX >> (64 - self.bits)) }
    }

    fn signed(self) -> i64 {
        let unused = 64 - self.bits;
        ((self.value << unused) as i64) >> unused
    }

    fn is(self, how: LLVMIntPredicate, other: Number) -> bool {
        let (a, b, c, d) = (self.value, other.value, self.signed(), other.signed());
        match how {
            LLVMIntEQ => a == b,
            LLVMIntNE => a != b,
            LLVMIntUGT => a > b,
            LLVMIntUGE => a >= b,
            LLVMIntULT => a < b,
            LLVMIntULE => a <= b,
            LLVMIntSGT => c > d,
            LLVMIntSGE => c >= d,
            LLVMIntSLT => c < d,
            LLVMIntSLE => c <= d,
        }
    }
}

/// How often control goes back from the end of `latch` to `head` whenever it came to `head` from elsewhere and leaves by the end of `latch`; `None` if that is no such constant.
pub fn times_round(latch: Block, head: Block) -> Option<u64> {
    let branch = latch.terminator();
    let is_conditional = branch.is(LLVMOpcode::LLVMBr) && llvm!(LLVMIsConditional(branch.0)) != 0;
    let successors = branch.successors();
    if !is_conditional || successors.iter().filter(|s| **s == head).count() != 1 {
        return None;
    }
    let compared = Value(llvm!(LLVMGetCondition(branch.0)));
    if llvm!(LLVMIsAICmpInst(compared.0)).is_null() {
        return None;
    }
    let (how, limit) = (llvm!(LLVMGetICmpPredicate(compared.0)), Number::of(operand(compared, 1))?);
    let (phi, first, step) = counter(operand(compared, 0), latch, head)?;
    let back_if = successors[0] == head;
    let (mut value, mut times) = (first, 0);
    loop {
        let next = value.plus(step);
        let seen = if operand(compared, 0) == phi { value } else { next };
        if seen.is(how, limit) != back_if {
            return Some(times);
        }
        times += 1;
        value = next;
        if times > MOST_ROUNDS {
            return None;
        }
    }
}

/// The phi node of `head` that a value is, or is the next value of; with what it begins with, and what each round adds.
fn counter(value: Value, latch: Block, head: Block) -> Option<(Value, Number, Number)> {
    head.phis().find_map(|phi| {
        let incoming = phi.incoming();
        let (next, _) = *incoming.iter().find(|(_, from)| *from == latch)?;
        if !(value == phi || value == next) || !is_sum(next) || operand(next, 0) != phi {
            return None;
        }
        let step = Number::of(operand(next, 1))?;
        let mut first = None;
        for (begins, _) in incoming.iter().filter(|(_, from)| *from != latch) {
            let begins = Number::of(*begins)?;
            if first.is_some_and(|known: Number| known.value != begins.value) {
                return None;
            }
            first = Some(begins);
        }
        Some((phi, first?, step))
    })
}

fn is_sum(value: Value) -> bool {
    !llvm!(LLVMIsABinaryOperator(value.0)).is_null() && value.is(LLVMOpcode::LLVMAdd)
}

fn operand(of: Value, index: u32) -> Value {
    Value(llvm!(LLVMGetOperand(of.0, index)))
}
