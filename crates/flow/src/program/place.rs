//! The versions of a function's code.

use crate::graph::Node;

/// A version of a node's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeVersion {
    /// A copy of the node in the known-path region, the code for known paths. Copy 0 is the original.
    Known(u32),
    /// The node in the instrumented code, which control enters when it leaves the known-path region.
    Instrumented,
}

/// A node of the function's graph in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePlace {
    /// The node.
    pub node: Node,
    /// The version.
    pub version: CodeVersion,
}
