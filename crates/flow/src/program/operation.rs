//! The operations of a probe program: what has to be done when control takes an edge, as an ordered list.
//!
//! The machine that they work on has a path register `r`, counters `count[...]`, for each loop that is counted by its trip
//! count a number of iterations, for each dominant iteration that is kept in a register a number of executions, and a
//! stream. [`super::machine`] has an interpreter that defines what each operation does.
//!
//! Invariant: what an operation names (a loop, a dominant iteration) is in the same program.

use crate::part::Hits;

/// A loop that is counted by its trip count, by its place in [`loops`](super::ProbeProgram::loops).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub usize);

/// A dominant iteration, by its place in [`dominant`](super::ProbeProgram::dominant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DominantId(pub usize);

/// What is done to path register, counters and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Control never takes this edge: nothing is done, and nothing else is in its list.
    Unreachable,
    /// `r += increment`.
    Add(i64),
    /// `r = value`.
    Set(i64),
    /// The value of `r` is not used any more before it is set.
    Discard,
    /// `count[r + increment] += 1`.
    Count {
        /// What the register lacks to the index.
        increment: i64,
    },
    /// The same where a loop closes, whose dominant iteration counts `count[index]`. That one may have an instruction of its
    /// own; or one more execution of it is kept in a register.
    CountIteration {
        /// What the register lacks to the index.
        increment: i64,
        /// The iteration.
        dominant: DominantId,
    },
    /// `if path r + increment is unknown { count[r + increment] += 1 }`.
    Check {
        /// What the register lacks to the path's number.
        increment: i64,
    },
    /// One more iteration of a loop that is counted by its trip count.
    Iterate(LoopId),
    /// Such a loop is left after `n` iterations. If `n > 0`: `count[r + l.increment] += 1`, `count[l.start + l.increment] += n - 1`
    /// and `r = l.start`. In any case: `r += partial`, `n = 0`.
    Flush {
        /// The loop `l`.
        of: LoopId,
        /// The increments from the loop's head to this edge.
        partial: i64,
    },
    /// Executions of a dominant iteration that are kept in a register: `count[index] += register`, `register = 0`.
    FlushDominant(DominantId),
    /// Counts hits of a copy's probes, to check what they are said to be.
    CountHits(Hits),
    /// Appends path `r + increment` to the stream.
    Emit {
        /// What the register lacks to the path's number.
        increment: i64,
    },
    /// Notes the path that was appended last in the frame of the call: the function calls something now.
    NoteCall,
    /// Appends to the stream that a call of the function begins. It is done where the function is entered, on no edge.
    EnterCall,
    /// Appends to the stream that the call of the function ended. It comes behind the call's last path.
    LeaveCall,
}

impl Operation {
    /// Whether it becomes code. Setting the register does not: it is in SSA form, and what is set is a constant.
    pub fn needs_code(self) -> bool {
        use Operation::{Add, Discard, Iterate, Set, Unreachable};
        !matches!(self, Unreachable | Set(_) | Discard | Iterate(_) | Add(0))
    }

    /// Whether it makes what was in the register before irrelevant.
    fn overwrites(self) -> bool {
        matches!(self, Operation::Set(_) | Operation::Discard)
    }

    /// Whether it uses or changes what is in the register.
    fn uses_register(self) -> bool {
        use Operation::{Add, Check, Count, CountIteration, Emit, Flush};
        matches!(self, Add(_) | Count { .. } | CountIteration { .. } | Check { .. } | Flush { .. } | Emit { .. })
    }
}

/// Whether what is in the register before these operations matters to them, or behind them.
pub fn reads_register(operations: &[Operation]) -> bool {
    operations.iter().find(|o| o.overwrites() || o.uses_register()).is_none_or(|o| !o.overwrites())
}

/// The value to which the register is set by these operations, if they set it.
pub fn value_set(operations: &[Operation]) -> Option<i64> {
    operations.iter().rev().find_map(|o| match o {
        Operation::Set(value) => Some(*value),
        _ => None,
    })
}

/// An addition, unless it is of nothing.
pub fn add(increment: i64) -> Option<Operation> {
    (increment != 0).then_some(Operation::Add(increment))
}
