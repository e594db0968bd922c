//! Directed multigraphs with one entry and one exit: the shape of a function, or of any graph a user hands in.
//!
//! Invariants: every edge joins two existing nodes; an edge's number is its place in the list; the out-edges of a node are
//! kept in the order of their numbers. Parallel edges are distinct, self-loops allowed.

use serde::{Deserialize, Serialize};

/// A node (a basic block, or the virtual exit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node(pub u32);

/// An edge of a [`Graph`], by its place in the list of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edge(pub u32);

/// Has numbers of things be indices.
#[macro_export]
macro_rules! indices {
    ($($number:ident),*) => {
        $(impl $number {
            /// The number as an index into tables that have an entry for each of such things.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        })*
    };
}
indices!(Node, Edge);

/// Why a list of nodes and edges is no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An edge, the entry or the exit names a node that does not exist.
    #[error("{what} names node {node}, but there are {nodes} nodes (numbered from 0)")]
    NoSuchNode {
        /// What names it.
        what: String,
        /// The number.
        node: u32,
        /// How many nodes there are.
        nodes: u32,
    },
    /// Entry and exit are one node.
    #[error("node {0} is both entry and exit: give the graph an exit of its own")]
    EntryIsExit(u32),
}

/// A directed multigraph with an entry and an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    entry: Node,
    exit: Node,
    edges: Vec<(Node, Node)>,
    out: Vec<Vec<Edge>>,
    into: Vec<Vec<Edge>>,
}

impl Graph {
    /// A graph of `nodes` nodes with the given edges.
    ///
    /// # Errors
    /// A node that does not exist, or an entry that is the exit.
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
        let mut out = vec![Vec::new(); nodes as usize];
        let mut into = vec![Vec::new(); nodes as usize];
        for (number, &(from, to)) in edges.iter().enumerate() {
            check(from, &|| format!("edge {number}"))?;
            check(to, &|| format!("edge {number}"))?;
            out[from.index()].push(Edge(number as u32));
            into[to.index()].push(Edge(number as u32));
        }
        Ok(Graph { entry, exit, edges, out, into })
    }

    /// The node where paths begin.
    pub fn entry(&self) -> Node {
        self.entry
    }

    /// The node where paths end.
    pub fn exit(&self) -> Node {
        self.exit
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.out.len()
    }

    /// Number of edges.
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// All nodes in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.out.len() as u32).map(Node)
    }

    /// All edges in the order of their numbers.
    pub fn edges(&self) -> impl Iterator<Item = Edge> + use<> {
        (0..self.edges.len() as u32).map(Edge)
    }

    /// Where an edge begins.
    pub fn from(&self, edge: Edge) -> Node {
        self.edges[edge.index()].0
    }

    /// Where an edge leads.
    pub fn to(&self, edge: Edge) -> Node {
        self.edges[edge.index()].1
    }

    /// The edges that leave a node, in order.
    pub fn out(&self, node: Node) -> &[Edge] {
        &self.out[node.index()]
    }

    /// The edges that enter a node, in order.
    pub fn incoming(&self, node: Node) -> &[Edge] {
        &self.into[node.index()]
    }
}

/// What is reached from `from` and was not seen before, each behind all that it leads to, but for what leads back. Iteratively, for graphs
/// may be deep.
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
    fn keeps_parallel_edges_apart_and_in_order() {
        let g = Graph::new(2, Node(0), Node(1), vec![(Node(0), Node(1)), (Node(0), Node(1))]).unwrap();
        assert_eq!(g.out(Node(0)), [Edge(0), Edge(1)]);
        assert_eq!(g.incoming(Node(1)), [Edge(0), Edge(1)]);
    }

    #[test]
    fn names_what_is_wrong() {
        let e = Graph::new(2, Node(0), Node(1), vec![(Node(0), Node(7))]).unwrap_err();
        assert_eq!(e.to_string(), "edge 0 names node 7, but there are 2 nodes (numbered from 0)");
        assert!(matches!(Graph::new(1, Node(0), Node(0), vec![]), Err(GraphError::EntryIsExit(0))));
    }
}
