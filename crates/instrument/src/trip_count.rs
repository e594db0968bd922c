//! Trip counts of loops, from the comparison that controls the latch.
//!
//! Recognises loops with a constant trip count, such as `for (i = 0; i < 16; i++)` after optimisation: the latch compares a constant with a
//! phi node of the header, or with the phi node plus a constant. The phi node starts with a constant and is incremented by a constant. It
//! takes the same values whenever the loop is entered, so they are enumerated. Other exits of the loop are not examined; callers must check
//! that the loop has none.

use crate::llvm::{Block, Builder, Value};
use llvm_sys::LLVMIntPredicate::{self, *};
use llvm_sys::LLVMOpcode;

/// Maximum number of iterations to enumerate, which limits compile time. With 16, one of three programs executes 0.2 % more instructions;
/// 2^24 changes nothing (docs/benchmarks/constants.md).
const MAX_ENUMERATED_ITERATIONS: u64 = 1 << 20;

/// An integer of `bits` bits, at most 64.
#[derive(Clone, Copy)]
struct SizedInteger {
    bits: u32,
    value: u64,
}

impl SizedInteger {
    fn from_value(value: Value) -> Option<SizedInteger> {
        value.as_unsigned().map(|(bits, value)| SizedInteger { bits, value })
    }

    fn wrapping_add(self, other: SizedInteger) -> SizedInteger {
        SizedInteger { bits: self.bits, value: self.value.wrapping_add(other.value) & (u64::MAX >> (64 - self.bits)) }
    }

    fn as_signed(self) -> i64 {
        let unused = 64 - self.bits;
        ((self.value << unused) as i64) >> unused
    }

    fn satisfies(self, how: LLVMIntPredicate, other: SizedInteger) -> bool {
        let (a, b, c, d) = (self.value, other.value, self.as_signed(), other.as_signed());
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

/// Returns how often the back edge from `latch` to `head` is taken each time the loop is entered, assuming that the loop exits at the
/// latch; `None` if that is not a known constant.
pub fn constant_trip_count(latch: Block, head: Block) -> Option<u64> {
    let branch = latch.terminator();
    let (compared, successors) = (branch.condition()?, branch.successors());
    if successors.iter().filter(|s| **s == head).count() != 1 {
        return None;
    }
    let (how, limit) = (compared.integer_predicate()?, SizedInteger::from_value(compared.operand(1))?);
    let (phi, first, step) = find_induction(compared.operand(0), latch, head)?;
    let back_if = successors[0] == head;
    let (mut value, mut times) = (first, 0);
    loop {
        let next = value.wrapping_add(step);
        let seen = if compared.operand(0) == phi { value } else { next };
        if seen.satisfies(how, limit) != back_if {
            return Some(times);
        }
        times += 1;
        value = next;
        if times > MAX_ENUMERATED_ITERATIONS {
            return None;
        }
    }
}

/// Maximum step of an iteration counter, as a power of two. A counter with a larger step wraps around too early to distinguish all
/// iterations; this limit allows 2^52 of them. With 3 or 24, three programs execute as many instructions (docs/benchmarks/constants.md).
const MAX_STEP_SHIFT: u32 = 12;

/// An induction variable that counts the iterations of a loop.
#[derive(Clone, Copy)]
pub struct TripCounter {
    /// The variable: a 64-bit value that in practice does not wrap around to an earlier value ([`MAX_STEP_SHIFT`]).
    pub value: Value,
    /// The counter's value in the first iteration.
    pub first: i64,
    /// The increment per iteration is `1 << shift`.
    pub shift: u32,
}

impl TripCounter {
    /// Emits the number of iterations so far, minus `times`.
    pub fn emit_iterations_minus(self, builder: &Builder, times: i64) -> Value {
        let by = self.first.wrapping_add(times << self.shift);
        let steps = if by == 0 { self.value } else { builder.add(self.value, builder.module.constant(by.wrapping_neg())) };
        if self.shift == 0 { steps } else { builder.shift_right(steps, builder.constant(self.shift.into())) }
    }

    /// Returns the counter as it is at the end of an iteration, after the step; `None` if `latch` is not a predecessor. The counter must be
    /// a phi node of the header.
    pub fn counter_at_latch(self, latch: Block) -> Option<TripCounter> {
        Some(TripCounter { value: self.value.incoming_from(latch)?, first: self.first.wrapping_add(1 << self.shift), ..self })
    }
}

/// Returns an induction variable of the loop from which the number of taken back edges can be computed: a phi node of the header that
/// starts with a constant and grows by a constant power of two. Using it saves the register of an additional counter.
pub fn existing_counter(latch: Block, head: Block) -> Option<TripCounter> {
    head.phis().find_map(|phi| {
        let (first, step) = first_value_and_step(phi, latch)?;
        let shift = step.value.trailing_zeros();
        (step.bits == 64 && step.value == 1 << shift && shift <= MAX_STEP_SHIFT).then_some(TripCounter {
            value: phi,
            first: first.value as i64,
            shift,
        })
    })
}

/// If `value` is an induction variable of the loop, before or after its step, returns the phi node, its first value and its step.
fn find_induction(value: Value, latch: Block, head: Block) -> Option<(Value, SizedInteger, SizedInteger)> {
    head.phis().find_map(|phi| {
        let next = phi.incoming_from(latch)?;
        let (first, step) = first_value_and_step(phi, latch).filter(|_| value == phi || value == next)?;
        Some((phi, first, step))
    })
}

/// Returns a phi node's first value and its step, if both are constant.
fn first_value_and_step(phi: Value, latch: Block) -> Option<(SizedInteger, SizedInteger)> {
    let next = phi.incoming_from(latch)?;
    if !is_addition(next) || next.operand(0) != phi {
        return None;
    }
    let step = SizedInteger::from_value(next.operand(1))?;
    let outside = phi.incoming().into_iter().filter(|(_, from)| *from != latch);
    let mut begins = outside.map(|(value, _)| SizedInteger::from_value(value));
    let first = begins.next()??;
    begins.all(|other| other.is_some_and(|o| o.value == first.value)).then_some((first, step))
}

fn is_addition(value: Value) -> bool {
    value.is(LLVMOpcode::LLVMAdd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llvm::test_module::{block, parse};

    /// Returns the trip count of a loop that counts from `first` in steps of `step` and continues while the comparison of `compared` with
    /// `limit` holds.
    fn trip_count(kind: &str, first: i64, step: i64, compared: &str, how: &str, limit: &str) -> Option<u64> {
        let module = parse(&format!(
            "define void @f({kind} %n) {{
            entry:
              br label %head
            head:
              %i = phi {kind} [ {first}, %entry ], [ %next, %head ]
              %next = add {kind} %i, {step}
              %again = icmp {how} {kind} {compared}, {limit}
              br i1 %again, label %head, label %done
            done:
              ret void
            }}"
        ));
        let function = module.function("f").unwrap();
        let head = block(function, "head");
        constant_trip_count(head, head)
    }

    #[test]
    fn constant_trip_counts_are_those_of_a_simulated_loop() {
        for (first, step, limit) in [(0i64, 1i64, 16i64), (3, 2, 40), (10, -1, 0), (-5, 5, 100)] {
            for (how, holds) in [("slt", i64::lt as fn(&i64, &i64) -> bool), ("sgt", i64::gt), ("ne", i64::ne)] {
                for (compared, ahead) in [("%i", 0), ("%next", step)] {
                    let mut expected = 0;
                    let mut i = first;
                    while holds(&(i + ahead), &limit) && expected <= MAX_ENUMERATED_ITERATIONS {
                        expected += 1;
                        i += step;
                    }
                    let found = trip_count("i64", first, step, compared, how, &limit.to_string());
                    let known = (expected <= MAX_ENUMERATED_ITERATIONS).then_some(expected);
                    assert_eq!(found, known, "from {first} by {step} while {compared} {how} {limit}");
                }
            }
        }
    }

    #[test]
    fn counters_wrap_around_at_their_width() {
        // 250, 251, ... 255, 0, 1: eight values before 2.
        assert_eq!(trip_count("i8", 250, 1, "%i", "ne", "2"), Some(8));
    }

    #[test]
    fn variable_limits_have_no_constant_trip_count() {
        assert_eq!(trip_count("i64", 0, 1, "%i", "slt", "%n"), None);
    }
}
