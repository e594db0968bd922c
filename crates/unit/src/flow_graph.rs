//! The control-flow graph of a function: a [`Graph`] whose edges have conditions.
//!
//! The compiler plugin builds the graph from the function's code, the map stores it, and readers use it unchanged. Cuts (edges at which
//! paths are divided), the acyclic graph and counts refer to an edge by its index in this graph.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Deref;
use trodden_flow::{Edge, EdgeSet, Graph, GraphError, Node};

/// The control-flow graph of a function. It has a node for each block, with the entry as block 0, and finally a node for the exit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredFlowGraph")]
pub struct FlowGraph {
    graph: Graph,
    conditions: Vec<EdgeCondition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EdgeCondition {
    kind: EdgeKind,
    cases: Vec<i64>,
}

/// A graph as read from a file, which may be corrupt.
#[derive(Deserialize)]
struct StoredFlowGraph {
    graph: Graph,
    conditions: Vec<EdgeCondition>,
}

impl TryFrom<StoredFlowGraph> for FlowGraph {
    type Error = &'static str;

    fn try_from(StoredFlowGraph { graph, conditions }: StoredFlowGraph) -> Result<FlowGraph, &'static str> {
        // Node numbers of all nodes except the exit are also block numbers.
        if graph.entry() != Node(0) || graph.exit().index() + 1 != graph.node_count() {
            return Err("a graph does not begin with its entry, or does not end with its exit");
        }
        match conditions.len() == graph.edge_count() {
            true => Ok(FlowGraph { graph, conditions }),
            false => Err("a graph has a different number of edges and conditions"),
        }
    }
}

/// An edge of a function's control-flow graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowEdge<'a> {
    /// Source block.
    pub from: Node,
    /// Target block, or the exit.
    pub to: Node,
    /// Condition under which the edge is taken.
    pub kind: EdgeKind,
    /// All values of a `switch` for which the edge is taken. The default edge has values only if cases lead to the same block.
    pub cases: Cow<'a, [i64]>,
}

/// Condition under which an edge is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EdgeKind {
    /// Always: the block has no other edge.
    Always,
    /// The condition of the branch is true.
    True,
    /// The condition of the branch is false.
    False,
    /// The value of the `switch` is one of the edge's cases, of which this is the first.
    Case(i64),
    /// The value of the `switch` is not a case of any other edge.
    Default,
    /// An indirect branch is taken. The value is the edge's index among the targets of the branch or, if there are several branches, of the
    /// block that dispatches them.
    Indirect(u32),
    /// A call that may throw returns normally.
    Normal,
    /// The call throws.
    Unwind,
    /// The function returns.
    Return,
    /// The function makes a tail call. The edge leads to the exit, or to a block that only returns the result of the call.
    TailCall,
    /// The function resumes unwinding after a cleanup.
    Resume,
    /// The block ends with a call that never returns.
    NoReturn,
    /// The block is about to make a call that may not return (because of `exit`, `longjmp` or an exception). This edge leads to the exit,
    /// but control never takes it: paths that end with it count how often the call was reached. Subtracting the paths that continue gives
    /// the number of calls that did not return.
    Reach,
    /// A call to a function that can return twice, such as `setjmp`, has returned.
    ReturnsTwice,
}

impl FlowEdge<'static> {
    /// Creates an edge without `switch` values.
    pub fn new(from: Node, to: Node, kind: EdgeKind) -> FlowEdge<'static> {
        FlowEdge { from, to, kind, cases: Cow::Borrowed(&[]) }
    }
}

impl FlowGraph {
    /// Creates the graph of a function with `blocks` blocks. Fails if an edge refers to a block that does not exist, or if there is no
    /// block.
    pub fn new<'a>(blocks: usize, edges: impl IntoIterator<Item = FlowEdge<'a>>) -> Result<FlowGraph, GraphError> {
        let (mut ends, mut conditions) = (Vec::new(), Vec::new());
        for FlowEdge { from, to, kind, cases } in edges {
            ends.push((from, to));
            conditions.push(EdgeCondition { kind, cases: cases.into_owned() });
        }
        let exit = Node(blocks as u32);
        Ok(FlowGraph { graph: Graph::new(exit.0 + 1, Node(0), exit, ends)?, conditions })
    }

    /// Returns the condition under which an edge is taken.
    pub fn kind(&self, edge: Edge) -> EdgeKind {
        self.conditions[edge.index()].kind
    }

    /// Returns the edge with a number. Panics if there is no such edge.
    pub fn edge(&self, edge: Edge) -> FlowEdge<'_> {
        let EdgeCondition { kind, cases } = &self.conditions[edge.index()];
        FlowEdge { from: self.from(edge), to: self.to(edge), kind: *kind, cases: Cow::Borrowed(cases) }
    }

    /// Returns the edge with a number; `None` if there is no such edge.
    pub fn get_edge(&self, edge: Edge) -> Option<FlowEdge<'_>> {
        (edge.index() < self.edge_count()).then(|| self.edge(edge))
    }

    /// Returns all edges in the order of their numbers.
    pub fn flow_edges(&self) -> impl Iterator<Item = FlowEdge<'_>> {
        self.edges().map(|edge| self.edge(edge))
    }

    /// Returns the set of edges whose condition satisfies `has`.
    pub fn edges_where(&self, has: impl Fn(EdgeKind) -> bool) -> EdgeSet {
        EdgeSet::from_fn(self.edge_count(), |edge| has(self.kind(edge)))
    }
}

impl Deref for FlowGraph {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_survives_encoding_and_corrupt_graph_is_rejected() {
        let edge = FlowEdge { cases: vec![3, 5].into(), ..FlowEdge::new(Node(0), Node(1), EdgeKind::Case(3)) };
        let graph = FlowGraph::new(2, [edge.clone(), FlowEdge::new(Node(1), Node(2), EdgeKind::Return)]).unwrap();
        assert_eq!((graph.edge(Edge(0)), graph.kind(Edge(1)), graph.get_edge(Edge(2))), (edge, EdgeKind::Return, None));
        let bytes = postcard::to_allocvec(&graph).unwrap();
        let read: FlowGraph = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((&read, read.out(Node(1))), (&graph, &[Edge(1)][..]));
        // Changes the target of the last edge, which is the exit.
        let at = bytes.windows(2).position(|pair| pair == [1, 2]).unwrap() + 1;
        let wrong: Vec<u8> = bytes.iter().enumerate().map(|(i, byte)| if i == at { 3 } else { *byte }).collect();
        assert!(postcard::from_bytes::<FlowGraph>(&wrong).is_err());
        let shorter = StoredFlowGraph { graph: read.graph.clone(), conditions: Vec::new() };
        assert!(FlowGraph::try_from(shorter).is_err());
        // The exit must be the last node, since the numbers of the other nodes are block numbers.
        let edges = vec![(Node(0), Node(2)), (Node(2), Node(1))];
        let other_exit = Graph::new(3, Node(0), Node(1), edges).unwrap();
        assert!(FlowGraph::try_from(StoredFlowGraph { graph: other_exit, conditions: read.conditions.clone() }).is_err());
    }
}
