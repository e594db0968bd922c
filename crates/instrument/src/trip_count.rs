//! How often loops iterate, as their own counters say.
//!
//! Loops that iterate a constant number of times are found by how their last branch counts: `for (i = 0; i < 16;
//! i++)`, after the optimiser.
//!
//! What is known this way: the branch that closes the loop compares a phi node of the loop's head, or that plus a
//! constant, with a constant; the phi node begins with a constant and is that sum in every further iteration. So it takes
//! the same values whenever the loop is entered, and they are enumerated here. Other exit edges of the loop are not
//! examined: a user of the number checks that there are none.

use crate::llvm::{Block, Builder, Value, llvm};
use llvm_sys::LLVMIntPredicate::{self, *};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;

/// Iterations up to which a loop is enumerated: bounds the time of a build. With 16, one of three programs executes 0.2 % more; with 2^24,
/// all are the same (docs/benchmarks/constants.md).
const MOST_ITERATIONS: u64 = 1 << 20;

/// An integer of so many bits, at most 64.
#[derive(Clone, Copy)]
struct Number {
    bits: u32,
    value: u64,
}

impl Number {
    fn from_value(value: Value) -> Option<Number> {
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

/// How often control goes back from the end of `latch` to `head` whenever it came to `head` from elsewhere and leaves
/// by the end of `latch`; `None` if that is no such constant.
pub fn constant_trip_count(latch: Block, head: Block) -> Option<u64> {
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
    let (how, limit) = (llvm!(LLVMGetICmpPredicate(compared.0)), Number::from_value(compared.operand(1))?);
    let (phi, first, step) = counted(compared.operand(0), latch, head)?;
    let back_if = successors[0] == head;
    let (mut value, mut times) = (first, 0);
    loop {
        let next = value.plus(step);
        let seen = if compared.operand(0) == phi { value } else { next };
        if seen.is(how, limit) != back_if {
            return Some(times);
        }
        times += 1;
        value = next;
        if times > MOST_ITERATIONS {
            return None;
        }
    }
}

/// Counters of larger steps, in bits, iterate too soon to distinguish all iterations; with this one, it takes 2^52 of them. That is what
/// it is for: with 3 or 24, three programs execute the same (docs/benchmarks/constants.md).
const MOST_SHIFT: u32 = 12;

/// What says how often a loop iterated.
#[derive(Clone, Copy)]
pub struct Counter {
    /// A number of 64 bits, so that it does not iterate to a value that it had; see [`MOST_SHIFT`].
    pub value: Value,
    /// What it is if the loop did not iterate.
    pub first: i64,
    /// Each further iteration adds `1 << shift`.
    pub shift: u32,
}

impl Counter {
    /// How often the loop iterated, less so many times.
    pub fn less(self, builder: &Builder, times: i64) -> Value {
        let by = self.first.wrapping_add(times << self.shift);
        let steps = if by == 0 { self.value } else { builder.add(self.value, builder.module.constant(by.wrapping_neg())) };
        if self.shift == 0 { steps } else { builder.shift_right(steps, builder.constant(self.shift.into())) }
    }

    /// The same at the end of an iteration, where this is what says it at the beginning: a phi node of the loop's head.
    pub fn next(self, latch: Block) -> Option<Counter> {
        Some(Counter { value: self.value.incoming_from(latch)?, first: self.first.wrapping_add(1 << self.shift), ..self })
    }
}

/// What says how often control went back from the end of `latch` to `head`, at the head, if there is such a number in
/// the program: one that begins with a constant, to which each iteration adds the same power of two. Code generation would
/// keep a number that is made besides in a register of its own.
pub fn counter(latch: Block, head: Block) -> Option<Counter> {
    head.phis().find_map(|phi| {
        let (first, step) = progression(phi, latch)?;
        let shift = step.value.trailing_zeros();
        (step.bits == 64 && step.value == 1 << shift && shift <= MOST_SHIFT).then_some(Counter {
            value: phi,
            first: first.value as i64,
            shift,
        })
    })
}

/// The phi node of `head` that a value is, or is the next value of; with what it begins with, and what each iteration adds.
fn counted(value: Value, latch: Block, head: Block) -> Option<(Value, Number, Number)> {
    head.phis().find_map(|phi| {
        let next = phi.incoming_from(latch)?;
        let (first, step) = progression(phi, latch).filter(|_| value == phi || value == next)?;
        Some((phi, first, step))
    })
}

/// The constant that a phi node begins with and the one that it grows by in each iteration, if it does both.
fn progression(phi: Value, latch: Block) -> Option<(Number, Number)> {
    let next = phi.incoming_from(latch)?;
    if !is_sum(next) || next.operand(0) != phi {
        return None;
    }
    let step = Number::from_value(next.operand(1))?;
    let outside = phi.incoming().into_iter().filter(|(_, from)| *from != latch);
    let mut begins = outside.map(|(value, _)| Number::from_value(value));
    let first = begins.next()??;
    begins.all(|other| other.is_some_and(|o| o.value == first.value)).then_some((first, step))
}

fn is_sum(value: Value) -> bool {
    !llvm!(LLVMIsABinaryOperator(value.0)).is_null() && value.is(LLVMOpcode::LLVMAdd)
}
