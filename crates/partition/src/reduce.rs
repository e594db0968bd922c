//! The reduced graph: diamonds and triangles are folded into dummy nodes, so that paths which differ only in a simple conditional stay
//! together.
//!
//! Source: Afraz, Saha and Kanade (2015), section 3.2. All diamonds and triangles are folded, including those at the entry and the exit
//! and those of parallel edges. Two that share a node become one dummy. A conditional whose join has other predecessors is not folded,
//! because the dummy has no edge into its join, so that paths would be lost. Repeated folding is an extension. It also folds a conditional
//! around a folded one, and a switch whose cases meet. O(edges) per iteration.

use std::collections::BTreeSet;
use trodden_flow::dag::{Dag, DagEdgeId, DagEdgeSet};
use trodden_flow::dense_set::DenseSet;
use trodden_flow::graph::{Node, NodeSet};
use trodden_flow::indices;

/// An edge of a [`ReducedDag`] graph: its index in [`ReducedDag::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReducedEdge(pub u32);

indices!(ReducedEdge);

/// A set of edges of a [`ReducedDag`] graph.
pub type ReducedEdgeSet = DenseSet<ReducedEdge>;

/// A DAG with folded conditionals. Nodes keep their numbers: a dummy has the number of the node at which it begins.
#[derive(Clone, Debug)]
pub struct ReducedDag {
    /// Remaining edges, each with its current source and target.
    pub edges: Vec<(DagEdgeId, Node, Node)>,
    /// Remaining nodes, in topological order.
    pub order: Vec<Node>,
    /// For each node, the edges folded into it.
    pub region: Vec<Vec<DagEdgeId>>,
    /// For each node, its outgoing edges.
    pub out: Vec<Vec<ReducedEdge>>,
    /// The node where paths end: the exit, or the dummy into which it is folded. The entry is always that of the DAG.
    pub exit: Node,
}

/// Folds the conditionals of a DAG: once, or repeatedly until none can be folded.
pub fn fold_conditionals(dag: &Dag, repeatedly: bool) -> ReducedDag {
    let mut folding = ConditionalFolding::from_dag(dag);
    folding.fold_all(2);
    while repeatedly && folding.fold_all(usize::MAX) {}
    folding.finish()
}

/// Translates edges of the reduced graph to edges of the original one: the edges themselves, and all that are folded into their nodes.
/// `originals` is the number of edges of the original graph.
pub fn original_edges(reduced: &ReducedDag, edges: &ReducedEdgeSet, originals: usize) -> DagEdgeSet {
    let mut out = DagEdgeSet::empty(originals);
    for (edge, from, to) in edges.iter().map(|kept| reduced.edges[kept.index()]) {
        out.insert(edge);
        out.extend(reduced.region[from.index()].iter().chain(&reduced.region[to.index()]).copied());
    }
    out
}

struct ConditionalFolding<'a> {
    dag: &'a Dag,
    from: Vec<Node>,
    to: Vec<Node>,
    out: Vec<Vec<DagEdgeId>>,
    into: Vec<Vec<DagEdgeId>>,
    gone: NodeSet,
    region: Vec<Vec<DagEdgeId>>,
    exit: Node,
}

impl ConditionalFolding<'_> {
    fn from_dag(dag: &Dag) -> ConditionalFolding<'_> {
        let nodes = || (0..dag.node_count() as u32).map(Node);
        ConditionalFolding {
            dag,
            from: dag.edges().iter().map(|e| e.from).collect(),
            to: dag.edges().iter().map(|e| e.to).collect(),
            out: nodes().map(|n| dag.out(n).to_vec()).collect(),
            into: nodes().map(|n| dag.incoming(n).to_vec()).collect(),
            gone: NodeSet::empty(dag.node_count()),
            region: vec![Vec::new(); dag.node_count()],
            exit: dag.exit(),
        }
    }

    /// Folds all conditionals with at most `max_edges` branches. Returns true if there was one.
    fn fold_all(&mut self, max_edges: usize) -> bool {
        let found: Vec<(Node, Node)> = self.dag.order().iter().filter_map(|n| Some((*n, self.find_join(*n, max_edges)?))).collect();
        // The order is reversed, because the join of one conditional may begin another one, and folding the later one keeps this node's
        // number and incoming edges.
        found.iter().rev().for_each(|(begin, end)| self.fold_conditional(*begin, *end));
        !found.is_empty()
    }

    /// Returns the join of the conditional that begins at a node, if there is one.
    fn find_join(&self, begin: Node, max_edges: usize) -> Option<Node> {
        let edges = &self.out[begin.index()];
        if self.gone.contains(begin) || !(2..=max_edges).contains(&edges.len()) {
            return None;
        }
        // One edge of a triangle leads directly to the join; the other leads there through one node.
        let middle: Vec<Option<Node>> = edges.iter().map(|e| self.only_successor(self.to[e.index()])).collect();
        let direct = |e: &DagEdgeId| self.to[e.index()];
        let candidates: BTreeSet<Node> = edges.iter().map(direct).chain(middle.iter().flatten().copied()).collect();
        let reaches = |end: Node| edges.iter().zip(&middle).all(|(e, m)| direct(e) == end || *m == Some(end));
        let single = |end: Node| self.into[end.index()].len() == edges.len();
        candidates.into_iter().find(|end| reaches(*end) && single(*end))
    }

    /// Returns the successor of a node if the node has exactly one incoming and one outgoing edge.
    fn only_successor(&self, node: Node) -> Option<Node> {
        match (self.into[node.index()].len(), &self.out[node.index()][..]) {
            (1, [only]) => Some(self.to[only.index()]),
            _ => None,
        }
    }

    fn fold_conditional(&mut self, begin: Node, end: Node) {
        let edges = std::mem::take(&mut self.out[begin.index()]);
        let mut content = Vec::new();
        for edge in edges {
            content.push(edge);
            let middle = self.to[edge.index()];
            if middle != end {
                content.append(&mut self.region[middle.index()]);
                content.append(&mut self.out[middle.index()]);
                self.gone.insert(middle);
            }
        }
        content.append(&mut self.region[end.index()]);
        self.gone.insert(end);
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

    fn finish(self) -> ReducedDag {
        let mut out = vec![Vec::new(); self.dag.node_count()];
        let mut edges = Vec::new();
        // A dummy keeps the position of its first node. The order remains topological, because all successors of the dummy come later.
        let order: Vec<Node> = self.dag.order().iter().copied().filter(|n| !self.gone.contains(*n)).collect();
        for node in &order {
            for edge in &self.out[node.index()] {
                out[node.index()].push(ReducedEdge(edges.len() as u32));
                edges.push((*edge, self.from[edge.index()], self.to[edge.index()]));
            }
        }
        ReducedDag { edges, order, region: self.region, out, exit: self.exit }
    }
}
