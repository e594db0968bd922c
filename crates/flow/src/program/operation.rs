//! The operations of a probe program. Each edge has an ordered list of operations.
//!
//! Operations use a path register `r`, counters `count[...]`, a pending number of iterations for each loop that is counted by trip count, a
//! pending number of executions for each dominant iteration that is counted in a register, and a stream. [`super::machine`] defines the
//! meaning of each operation. Loops and dominant iterations that an operation refers to belong to the same program.

use crate::part::ProbeHits;

/// A loop that is counted by trip count, by its index in [`loops`](super::ProbeProgram::loops).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoopId(pub usize);

/// A dominant iteration, by its index in [`dominant`](super::ProbeProgram::dominant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DominantId(pub usize);

/// An operation on the path register, the counters and the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Control never takes this edge. The edge has no other operation.
    Unreachable,
    /// `r += increment`.
    Add(i64),
    /// `r = value`.
    Set(i64),
    /// The value of `r` is not used before it is set again.
    Discard,
    /// `count[r + increment] += 1`.
    Count {
        /// The counter's index minus the register.
        increment: i64,
    },
    /// Like [`Operation::Count`], on a back edge with a dominant iteration, which is counted by a separate instruction or in a register.
    CountIteration {
        /// The counter's index minus the register.
        increment: i64,
        /// The dominant iteration.
        dominant: DominantId,
    },
    /// `if path r + increment is unknown { count[r + increment] += 1 }`.
    Check {
        /// The path's number minus the register.
        increment: i64,
    },
    /// Adds one pending iteration of a loop that is counted by trip count.
    Iterate(LoopId),
    /// Leaves a loop `l` that is counted by trip count, after `n` pending iterations. If `n > 0`: `count[r + l.increment] += 1`,
    /// `count[l.start + l.increment] += n - 1`, `r = l.start`. Then, for any `n`: `r += partial`, `n = 0`.
    Flush {
        /// The loop `l`.
        of: LoopId,
        /// The increments from the loop's head to this edge.
        partial: i64,
    },
    /// Adds the executions of a dominant iteration that is counted in a register: `count[index] += register`, `register = 0`.
    FlushDominant(DominantId),
    /// Counts the executions of the probes on this edge, to compare them with the prediction for a copy of the program.
    CountHits(ProbeHits),
    /// Appends path `r + increment` to the stream.
    Emit {
        /// The path's number minus the register.
        increment: i64,
    },
    /// Writes the number of the most recently appended path to the function's frame, because the function is about to make a call.
    NoteCall,
    /// Appends the beginning of a call of the function to the stream. This operation is executed at function entry, not on an edge.
    EnterCall,
    /// Appends the end of the call of the function to the stream, after its last path.
    LeaveCall,
}

impl Operation {
    /// Returns whether the operation generates code. Setting the register does not, since it is an SSA value and is set to a constant.
    pub fn needs_code(self) -> bool {
        use Operation::{Add, Discard, Iterate, Set, Unreachable};
        !matches!(self, Unreachable | Set(_) | Discard | Iterate(_) | Add(0))
    }

    /// Returns whether the previous value of the register is irrelevant after the operation.
    fn overwrites_register(self) -> bool {
        matches!(self, Operation::Set(_) | Operation::Discard)
    }

    fn uses_register(self) -> bool {
        use Operation::{Add, Check, Count, CountIteration, Emit, Flush};
        matches!(self, Add(_) | Count { .. } | CountIteration { .. } | Check { .. } | Flush { .. } | Emit { .. })
    }
}

/// Returns whether the register's value before these operations is used by them or after them.
pub fn reads_register(operations: &[Operation]) -> bool {
    operations.iter().find(|o| o.overwrites_register() || o.uses_register()).is_none_or(|o| !o.overwrites_register())
}

/// Returns the constant to which these operations set the register, or `None` if they do not set it.
pub fn constant_register_value(operations: &[Operation]) -> Option<i64> {
    operations.iter().rev().find_map(|o| match o {
        Operation::Set(value) => Some(*value),
        _ => None,
    })
}

/// Returns the operation that adds `increment` to the register, or `None` if the increment is zero.
pub fn add(increment: i64) -> Option<Operation> {
    (increment != 0).then_some(Operation::Add(increment))
}
