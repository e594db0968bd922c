//! Where a path starts and ends, and which outgoing edge it takes at a branch.

use trodden_flow::{CutReason, Edge, Node};
use trodden_unit::EdgeKind;

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownPathStart {
    /// At the function's entry.
    Entry,
    /// At the target of a cut edge, that is, an edge at which the previous path ended.
    AfterCut {
        /// The reason why paths are cut at the edge.
        reason: CutReason,
        /// The block where the path starts.
        at: Node,
        /// The first line of the block where the path starts; `None` if it is unknown.
        line: Option<u32>,
    },
}

/// Where a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownPathEnd {
    /// At an exit of the function.
    Exit {
        /// The edge by which the path leaves the function.
        edge: Edge,
        /// The edge's kind.
        kind: EdgeKind,
        /// The last line of the path's last block; `None` if it is unknown.
        line: Option<u32>,
    },
    /// At a cut edge. The next path starts at the edge's target.
    Cut {
        /// The reason why paths are cut at the edge.
        reason: CutReason,
        /// The block where the next path starts.
        to: Node,
        /// The first line of the block where the next path starts; `None` if it is unknown.
        line: Option<u32>,
    },
    /// In a block without successors, such as one that ends the program.
    Stop {
        /// The last line of the path's last block; `None` if it is unknown.
        line: Option<u32>,
    },
    /// At a call that did not return.
    Call {
        /// The block that makes the call.
        at: Node,
        /// The first and last line of the code up to the call in the block that makes it; `None` if they are unknown.
        lines: Option<(u32, u32)>,
    },
}

/// The outgoing edge that a path takes at a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenBranch {
    /// The edge's kind.
    pub kind: EdgeKind,
    /// The description of the direction, such as `→ 14, not 20` or `case 3`.
    pub text: String,
    /// The taken edge.
    pub edge: Edge,
}
