//! The reduced graph: diamonds and triangles folded into dummy nodes, so that paths which share all but a simple conditional stay together.
//!
//! Source: Afraz, Saha and Kanade (2015), section 3.2. A diamond is a node with two successors, each over one node with
//! nothing else, to one node; in a triangle one of the edges is an edge, and of two parallel edges both are. All that
//! the graph has are folded, at the entry and the exit too; where one follows another, so that they share a node, they
//! become one dummy, as one path of the reduced graph leads through both. An end that is reached from elsewhere stays, and with it its
//! conditional: the paper's dummies have no edges into their ends, so paths would be lost.
//!
//! Folding again, until nothing folds, is an extension: a folded conditional may be all that stands in a way of another
//! one; then a switch whose edges all meet at once folds as well. O(edges) an iteration.

use std::collections::BTreeSet;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::graph::Node;

/// A DAG with folded conditionals. Nodes keep their numbers: a dummy has that of its begin node.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Edges that are left, each with where it leads from and to now.
    pub edges: Vec<(DagEdgeId, Node, Node)>,
    /// The nodes that are left, in topological order.
    pub order: Vec<Node>,
    /// For each node the edges folded into it.
    pub region: Vec<Vec<DagEdgeId>>,
    /// For each node its out-edges, as places in `edges`.
    pub out: Vec<Vec<usize>>,
    /// Where paths end: the exit, or what it is folded into. The entry is always the DAG's.
    pub exit: Node,
}

/// Folds once, or until nothing folds.
pub fn reduce(dag: &Dag, again: bool) -> Reduced {
    let mut folding = Folding::from_dag(dag);
    folding.round(2);
    while again && folding.round(usize::MAX) {}
    folding.finish()
}

/// Original edges of a set of edges of the reduced graph: each edge, and all that is folded into its ends.
pub fn original_edges(reduced: &Reduced, edges: &[bool], originals: usize) -> Vec<bool> {
    let mut out = vec![false; originals];
    for (_, &(edge, from, to)) in edges.iter().zip(&reduced.edges).filter(|(kept, _)| **kept) {
        out[edge.index()] = true;
        let folded = reduced.region[from.index()].iter().chain(&reduced.region[to.index()]);
        folded.for_each(|e| out[e.index()] = true);
    }
    out
}

struct Folding<'a> {
    dag: &'a Dag,
    from: Vec<Node>,
    to: Vec<Node>,
    out: Vec<Vec<DagEdgeId>>,
    into: Vec<Vec<DagEdgeId>>,
    gone: Vec<bool>,
    region: Vec<Vec<DagEdgeId>>,
    exit: Node,
}

impl Folding<'_> {
    fn from_dag(dag: &Dag) -> Folding<'_> {
        let nodes = || (0..dag.node_count() as u32).map(Node);
        Folding {
            dag,
            from: dag.edges().iter().map(|e| e.from).collect(),
            to: dag.edges().iter().map(|e| e.to).collect(),
            out: nodes().map(|n| dag.out(n).to_vec()).collect(),
            into: nodes().map(|n| dag.incoming(n).to_vec()).collect(),
            gone: vec![false; dag.node_count()],
            region: vec![Vec::new(); dag.node_count()],
            exit: dag.exit(),
        }
    }

    /// Folds all conditionals of at most so many edges that there are before the iteration; whether there was one.
    fn round(&mut self, most: usize) -> bool {
        let found: Vec<(Node, Node)> = self.dag.order().iter().filter_map(|n| Some((*n, self.conditional(*n, most)?))).collect();
        // The last first: the end of one may be the begin of another, which keeps its number and its in-edges.
        found.iter().rev().for_each(|(begin, end)| self.fold(*begin, *end));
        !found.is_empty()
    }

    /// The end of the conditional that begins at a node.
    fn conditional(&self, begin: Node, most: usize) -> Option<Node> {
        let edges = &self.out[begin.index()];
        if self.gone[begin.index()] || !(2..=most).contains(&edges.len()) {
            return None;
        }
        // A triangle's direct edge leads to the end itself, which other edges reach over a node.
        let middle: Vec<Option<Node>> = edges.iter().map(|e| self.over(self.to[e.index()])).collect();
        let direct = |e: &DagEdgeId| self.to[e.index()];
        let candidates: BTreeSet<Node> = edges.iter().map(direct).chain(middle.iter().flatten().copied()).collect();
        let reaches = |end: Node| edges.iter().zip(&middle).all(|(e, m)| direct(e) == end || *m == Some(end));
        let single = |end: Node| self.into[end.index()].len() == edges.len();
        candidates.into_iter().find(|end| reaches(*end) && single(*end))
    }

    /// Where a node with one in-edge and one out-edge leads.
    fn over(&self, node: Node) -> Option<Node> {
        match (self.into[node.index()].len(), &self.out[node.index()][..]) {
            (1, [only]) => Some(self.to[only.index()]),
            _ => None,
        }
    }

    fn fold(&mut self, begin: Node, end: Node) {
        let edges = std::mem::take(&mut self.out[begin.index()]);
        let mut content = Vec::new();
        for edge in edges {
            content.push(edge);
            let middle = self.to[edge.index()];
            if middle != end {
                content.append(&mut self.region[middle.index()]);
                content.append(&mut self.out[middle.index()]);
                self.gone[middle.index()] = true;
            }
        }
        content.append(&mut self.region[end.index()]);
        self.gone[end.index()] = true;
        self.into[end.index()].clear();
        if self.exit == end {
            self.exit = begin;
        }
        self.out[begin.index()] = std::mem::take(&mut self.out[end.index()]);
        for edge in &self.out[begin.index()] {
            self.from[edge.index()] = begin;
        }
        self.region[begin.index()].extend(content);
    }

    fn finish(self) -> Reduced {
        let mut out = vec![Vec::new(); self.dag.node_count()];
        let mut edges = Vec::new();
        // A dummy takes the place of its begin in the order: what its end led to comes later all the same.
        let order: Vec<Node> = self.dag.order().iter().copied().filter(|n| !self.gone[n.index()]).collect();
        for node in &order {
            for edge in &self.out[node.index()] {
                out[node.index()].push(edges.len());
                edges.push((*edge, self.from[edge.index()], self.to[edge.index()]));
            }
        }
        Reduced { edges, order, region: self.region, out, exit: self.exit }
    }
}
