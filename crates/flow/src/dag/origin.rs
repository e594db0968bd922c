//! The edges of an acyclic graph, and the part of the original graph to which each edge corresponds.

use crate::graph::{Edge, Graph, Node};
use serde::{Deserialize, Serialize};

/// The part of the graph to which an edge of the DAG corresponds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// An edge that is not cut.
    Real(Edge),
    /// A dummy edge for paths that begin at the head of this cut edge. With [`Entries::Shared`](super::Entries::Shared), this is the first
    /// cut edge with this head.
    Enter(Edge),
    /// A dummy edge for paths that end by taking this cut edge.
    Leave(Edge),
    /// A dummy edge for paths that end in this node, which has no out-edges.
    Stop(Node),
}

impl Origin {
    /// Returns the edge of the graph that the origin names, or `None` for [`Origin::Stop`].
    pub fn edge(self) -> Option<Edge> {
        match self {
            Origin::Real(edge) | Origin::Enter(edge) | Origin::Leave(edge) => Some(edge),
            Origin::Stop(_) => None,
        }
    }

    /// Returns the edge of the DAG that has this origin. The origin must belong to `graph`.
    pub fn dag_edge(self, graph: &Graph) -> DagEdge {
        let (from, to) = match self {
            Origin::Real(edge) => (graph.from(edge), graph.to(edge)),
            Origin::Enter(edge) => (graph.entry(), graph.to(edge)),
            Origin::Leave(edge) => (graph.from(edge), graph.exit()),
            Origin::Stop(node) => (node, graph.exit()),
        };
        DagEdge { from, to, origin: self }
    }
}

/// Reason for cutting an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CutReason {
    /// The edge closes a cycle: it is a retreating edge of the depth-first search (in a reducible graph, a back edge).
    Back,
    /// The edge leaves the exit of the graph.
    FromExit,
    /// Control may take the edge a second time without entering its tail again (`setjmp`, `vfork`).
    ReturnsTwice,
    /// No code can be inserted on the edge, because it is one of several indirect jumps to the same target.
    Unsplittable,
    /// The function would have more paths than the limit.
    Limit,
    /// Edges are counted instead of paths, so each path is a single edge.
    EachEdge,
}

/// An edge of the acyclic graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DagEdge {
    /// The tail.
    pub from: Node,
    /// The head.
    pub to: Node,
    /// The corresponding part of the graph.
    pub origin: Origin,
}
