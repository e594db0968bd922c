//! Events of a traced thread.

use serde::{Deserialize, Serialize};

/// A function of the trace, as an index into [`TraceDescription::functions`](crate::TraceDescription::functions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceFunction(pub u32);

/// A program block of the trace, as an index into [`TraceDescription::blocks`](crate::TraceDescription::blocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceBlock(pub u32);

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A block is executed.
    Block(TraceBlock),
    /// A call; the next block is the callee's first.
    Call {
        /// True if the caller is outside the traced code.
        outside: bool,
        /// True for a tail call, which replaces the frame of the caller.
        tail: bool,
    },
    /// The current function returns.
    Return,
    /// The current function is left by an exception or `longjmp`.
    Unwind,
}
