//! Where the code of a node is, in a program of several versions of the code.

use crate::graph::Node;

/// Where a node's code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeVersion {
    /// In the known-path region: which of the node's copies there, of which 0 is the original.
    Known(u32),
    /// In the instrumented code, where control goes on that leaves the region.
    Instrumented,
}

/// A place of the code: a node of the function's graph in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePlace {
    /// The node.
    pub node: Node,
    /// The version.
    pub version: CodeVersion,
}
