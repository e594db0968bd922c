//! Directed multigraphs with one entry and one exit, such as a function's control-flow graph.
//!
//! Invariants: both ends of every edge exist; an edge's number is its position in the edge list; a node's out-edges are in the order of
//! their numbers. Parallel edges are distinct, and self-loops are allowed.

use crate::dense_set::DenseSet;
use crate::incidence::Incidence;
use serde::{Deserialize, Serialize, Serializer};
use std::sync::OnceLock;

/// A node (a basic block, or the virtual exit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node(pub u32);

/// An edge of a [`Graph`], by its position in the list of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edge(pub u32);

/// Implements `index` and [`DenseIndex`](crate::dense_set::DenseIndex) for newtypes over `u32`.
#[macro_export]
macro_rules! indices {
    ($($number:ident),*) => {
        $(impl $number {
            /// Returns the number as an index into a vector with an element for each node or edge.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl $crate::dense_set::DenseIndex for $number {
            fn from_index(index: usize) -> $number {
                $number(index as u32)
            }

            fn to_index(self) -> usize {
                self.index()
            }
        })*
    };
}
indices!(Node, Edge);

/// A set of a [`Graph`]'s edges.
pub type EdgeSet = DenseSet<Edge>;
/// A set of a [`Graph`]'s nodes.
pub type NodeSet = DenseSet<Node>;

/// Reason why nodes and edges do not form a [`Graph`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An edge, the entry or the exit names a node that does not exist.
    #[error("{what} names node {node}, which does not exist: there are {nodes} nodes, numbered from 0")]
    NoSuchNode {
        /// The entry, the exit or an edge, with its number.
        what: String,
        /// The number of the missing node.
        node: u32,
        /// Number of nodes of the graph.
        nodes: u32,
    },
    /// Entry and exit are the same node.
    #[error("node {0} is both entry and exit. Add a separate exit node to the graph")]
    EntryIsExit(u32),
}

/// A directed multigraph with an entry and an exit.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "StoredGraph")]
pub struct Graph {
    nodes: u32,
    entry: Node,
    exit: Node,
    edges: Vec<(Node, Node)>,
    /// Computed on first use, because most graphs that are loaded from a file are never traversed.
    incidence: OnceLock<GraphIncidence>,
}

#[derive(Clone, Debug)]
struct GraphIncidence {
    out: Incidence<Edge>,
    into: Incidence<Edge>,
}

/// A graph as it was stored, which may be corrupt.
#[derive(Deserialize)]
struct StoredGraph {
    nodes: u32,
    entry: Node,
    exit: Node,
    edges: Vec<(Node, Node)>,
}

#[derive(Serialize)]
struct GraphToStore<'a> {
    nodes: u32,
    entry: Node,
    exit: Node,
    edges: &'a [(Node, Node)],
}

impl TryFrom<StoredGraph> for Graph {
    type Error = String;

    fn try_from(stored: StoredGraph) -> Result<Graph, String> {
        // Readers allocate memory for each node, so a corrupt number of nodes must not be accepted.
        if stored.nodes as usize > 2 * stored.edges.len() + 2 {
            return Err(format!("a graph has {} nodes but only {} edges", stored.nodes, stored.edges.len()));
        }
        Graph::new(stored.nodes, stored.entry, stored.exit, stored.edges).map_err(|e| e.to_string())
    }
}

impl Serialize for Graph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        GraphToStore { nodes: self.nodes, entry: self.entry, exit: self.exit, edges: &self.edges }.serialize(serializer)
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        (self.nodes, self.entry, self.exit, &self.edges) == (other.nodes, other.entry, other.exit, &other.edges)
    }
}

impl Eq for Graph {}

impl Graph {
    /// Creates a graph of `nodes` nodes with the given edges.
    pub fn new(nodes: u32, entry: Node, exit: Node, edges: Vec<(Node, Node)>) -> Result<Graph, GraphError> {
        let check = |node: Node, what: &dyn Fn() -> String| match node.0 < nodes {
            true => Ok(()),
            false => Err(GraphError::NoSuchNode { what: what(), node: node.0, nodes }),
        };
        check(entry, &|| "the entry".into())?;
        check(exit, &|| "the exit".into())?;
        if entry == exit {
            return Err(GraphError::EntryIsExit(entry.0));
        }
        for (number, &(from, to)) in edges.iter().enumerate() {
            check(from, &|| format!("edge {number}"))?;
            check(to, &|| format!("edge {number}"))?;
        }
        Ok(Graph { nodes, entry, exit, edges, incidence: OnceLock::new() })
    }

    /// Returns the node where paths begin.
    pub fn entry(&self) -> Node {
        self.entry
    }

    /// Returns the node where paths end.
    pub fn exit(&self) -> Node {
        self.exit
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes as usize
    }

    /// Returns the number of edges.
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// Returns all nodes in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.nodes).map(Node)
    }

    /// Returns all edges in the order of their numbers.
    pub fn edges(&self) -> impl Iterator<Item = Edge> + use<> {
        (0..self.edges.len() as u32).map(Edge)
    }

    /// Returns the tail of an edge.
    pub fn from(&self, edge: Edge) -> Node {
        self.edges[edge.index()].0
    }

    /// Returns the head of an edge.
    pub fn to(&self, edge: Edge) -> Node {
        self.edges[edge.index()].1
    }

    /// Returns the edges that leave a node, in order.
    pub fn out(&self, node: Node) -> &[Edge] {
        self.incidence().out.of(node.index())
    }

    /// Returns the edges that enter a node, in order.
    pub fn incoming(&self, node: Node) -> &[Edge] {
        self.incidence().into.of(node.index())
    }

    fn incidence(&self) -> &GraphIncidence {
        self.incidence.get_or_init(|| GraphIncidence {
            out: Incidence::new(self.node_count(), self.edges.iter().map(|edge| edge.0.index())),
            into: Incidence::new(self.node_count(), self.edges.iter().map(|edge| edge.1.index())),
        })
    }
}

/// Marks the nodes that are reachable from `from` as seen, and returns the new ones in depth-first postorder. Does not use recursion.
pub fn postorder<I: Iterator<Item = usize>>(from: usize, seen: &mut [bool], next: impl Fn(usize) -> I) -> Vec<usize> {
    let (mut order, mut walk) = (Vec::new(), Vec::new());
    if !std::mem::replace(&mut seen[from], true) {
        walk.push((from, next(from)));
    }
    while let Some((node, rest)) = walk.last_mut() {
        match rest.find(|to| !std::mem::replace(&mut seen[*to], true)) {
            Some(to) => walk.push((to, next(to))),
            None => {
                order.push(*node);
                walk.pop();
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_edges_are_distinct_and_in_order() {
        let g = Graph::new(2, Node(0), Node(1), vec![(Node(0), Node(1)), (Node(0), Node(1))]).unwrap();
        assert_eq!(g.out(Node(0)), [Edge(0), Edge(1)]);
        assert_eq!(g.incoming(Node(1)), [Edge(0), Edge(1)]);
    }

    #[test]
    fn errors_name_the_edge_and_the_node() {
        let e = Graph::new(2, Node(0), Node(1), vec![(Node(0), Node(7))]).unwrap_err();
        assert_eq!(e.to_string(), "edge 0 names node 7, which does not exist: there are 2 nodes, numbered from 0");
        assert!(matches!(Graph::new(1, Node(0), Node(0), vec![]), Err(GraphError::EntryIsExit(0))));
    }
}
