//! Where a path begins and ends, and the outgoing edge that it takes at a branch.

use trodden_flow::{CutReason, Edge, Node};
use trodden_unit::EdgeKind;

/// How a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// At the function's entry.
    Entry,
    /// Where a cut edge leads.
    AfterCut {
        /// Why the edge was cut.
        reason: CutReason,
        /// Block where the path begins.
        at: Node,
        /// Line of that block.
        line: Option<u32>,
    },
}

/// How a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The function is left.
    Exit {
        /// By which edge.
        edge: Edge,
        /// The edge's kind.
        kind: EdgeKind,
        /// Line of the last block.
        line: Option<u32>,
    },
    /// The path ends with a cut edge. Another path begins after it.
    Cut {
        /// Why the edge was cut.
        reason: CutReason,
        /// Block where the next path begins.
        to: Node,
        /// Line of that block.
        line: Option<u32>,
    },
    /// In a block without successors.
    Stop {
        /// Line of that block.
        line: Option<u32>,
    },
    /// At a call that did not return.
    Call {
        /// Block that makes the call.
        at: Node,
        /// First and last line of that block.
        lines: Option<(u32, u32)>,
    },
}

/// The outgoing edge that a path takes at a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The edge's kind.
    pub kind: EdgeKind,
    /// The text shown for it: `→ 14, not 20`, `case 3`.
    pub text: String,
    /// The edge that is taken.
    pub edge: Edge,
}
