//! The paths that a scheme has to distinguish: given as a list of paths, or as a set of edges.
//!
//! Both are needed. SPP and PSPP (P3 paper, section 3.1) work on *interesting edges*: what is interesting to them is
//! every path whose edges all are (the closure). PPP and the table of known paths work on the paths themselves. A list
//! of paths gives a set of edges, their union, whose closure may hold more paths; a set of edges gives the list of its
//! closure, if that is not too long.
//!
//! Invariants: every edge of the set lies on an interesting path (others are dropped: no path could show that they were
//! there); paths are sorted by their Ball-Larus identities, without repetition; there is at least one.

use super::NumberingError;
use trodden_flow::Numbering;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::graph::Node;

/// A longer list of interesting paths is refused: the schemes that need a list keep something for each of them.
pub const MOST_LISTED: u64 = 1 << 20;

/// A set of interesting paths of a [`Dag`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestingSet {
    edges: Vec<bool>,
    closure: u128,
    listed: Option<Vec<Vec<DagEdgeId>>>,
}

impl InterestingSet {
    /// Every path.
    pub fn all(dag: &Dag) -> InterestingSet {
        InterestingSet::from_edges(dag, &vec![true; dag.edges().len()]).expect("a graph has a path")
    }

    /// These paths, from entry to exit.
    ///
    /// # Errors
    /// There is none, or one of them is no path from entry to exit.
    pub fn from_paths(dag: &Dag, numbering: &Numbering, paths: &[Vec<DagEdgeId>]) -> Result<InterestingSet, NumberingError> {
        for (number, path) in paths.iter().enumerate() {
            check_path(dag, path).map_err(|why| NumberingError::NoPath { number, why })?;
        }
        let mut listed = paths.to_vec();
        listed.sort_by_key(|p| numbering.id(p));
        listed.dedup();
        if listed.is_empty() {
            return Err(NumberingError::NothingInteresting);
        }
        let mut edges = vec![false; dag.edges().len()];
        listed.iter().flatten().for_each(|e| edges[e.index()] = true);
        let closure = count(dag, &edges);
        Ok(InterestingSet { edges, closure, listed: Some(listed) })
    }

    /// The paths with these Ball-Larus identities.
    ///
    /// # Errors
    /// There is none, or no path has one of the identities.
    pub fn from_ids(dag: &Dag, numbering: &Numbering, ids: &[u64]) -> Result<InterestingSet, NumberingError> {
        let path = |id: &u64| numbering.path(dag, *id).ok_or(NumberingError::NoSuchId { id: *id, paths: numbering.paths() });
        let paths: Vec<Vec<DagEdgeId>> = ids.iter().map(path).collect::<Result<_, _>>()?;
        InterestingSet::from_paths(dag, numbering, &paths)
    }

    /// All paths whose every edge is marked: one mark for each edge of the DAG.
    ///
    /// # Errors
    /// There is no such path.
    pub fn from_edges(dag: &Dag, marked: &[bool]) -> Result<InterestingSet, NumberingError> {
        let edges = dag.on_whole_paths(|e| marked[e.index()]);
        match count(dag, &edges) {
            0 => Err(NumberingError::NothingInteresting),
            closure => Ok(InterestingSet { edges, closure, listed: None }),
        }
    }

    /// All paths through every one of these nodes. They are a closure: an edge that passes one of the nodes by lies on none of them.
    ///
    /// # Errors
    /// No path passes through all of them.
    pub fn through(dag: &Dag, nodes: &[Node]) -> Result<InterestingSet, NumberingError> {
        let mut marked = vec![true; dag.edges().len()];
        for &node in nodes {
            let (after, before) = (dag.reached_from(node, |e| marked[e.index()]), dag.leading_to(node, |e| marked[e.index()]));
            for id in dag.edge_ids() {
                marked[id.index()] &= after[dag.edge(id).from.index()] || before[dag.edge(id).to.index()];
            }
        }
        InterestingSet::from_edges(dag, &marked).map_err(|_| NumberingError::NoPathThrough { nodes: nodes.iter().map(|n| n.0).collect() })
    }

    /// Whether an edge lies on an interesting path.
    pub fn has(&self, edge: DagEdgeId) -> bool {
        self.edges[edge.index()]
    }

    /// One mark for each edge of the DAG.
    pub fn edges(&self) -> &[bool] {
        &self.edges
    }

    /// Number of paths whose every edge is interesting.
    pub fn closure(&self) -> u128 {
        self.closure
    }

    /// Whether the set was given by its paths.
    pub fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// Number of interesting paths: those of the list, or of the closure.
    pub fn count(&self) -> u128 {
        self.listed.as_ref().map_or(self.closure, |l| l.len() as u128)
    }

    /// The same edges, with all paths of their closure as the interesting ones.
    pub fn closed(&self) -> InterestingSet {
        InterestingSet { listed: None, ..self.clone() }
    }

    /// The interesting paths, sorted by their Ball-Larus identities.
    ///
    /// # Errors
    /// There are more than [`MOST_LISTED`].
    pub fn paths(&self, dag: &Dag) -> Result<Vec<Vec<DagEdgeId>>, NumberingError> {
        if let Some(listed) = &self.listed {
            return Ok(listed.clone());
        }
        if self.closure > u128::from(MOST_LISTED) {
            return Err(NumberingError::TooManyInteresting { paths: self.closure, limit: MOST_LISTED });
        }
        // Out-edges are visited in the order of the numbering, so paths come in the order of their identities.
        let mut paths = Vec::new();
        let mut path: Vec<DagEdgeId> = Vec::new();
        let mut stack = vec![(dag.entry(), 0)];
        while let Some((node, next)) = stack.last_mut() {
            if *node == dag.exit() {
                paths.push(path.clone());
            }
            let out = dag.out(*node);
            match (*next..out.len()).find(|i| self.has(out[*i])) {
                Some(at) => {
                    *next = at + 1;
                    path.push(out[at]);
                    stack.push((dag.edge(out[at]).to, 0));
                }
                None => {
                    stack.pop();
                    path.pop();
                }
            }
        }
        Ok(paths)
    }
}

/// Says what is wrong with a path, if something is.
fn check_path(dag: &Dag, path: &[DagEdgeId]) -> Result<(), String> {
    if let Some(bad) = path.iter().find(|e| e.index() >= dag.edges().len()) {
        return Err(format!("there is no edge {}", bad.0));
    }
    let mut at = dag.entry();
    for &edge in path {
        if dag.edge(edge).from != at {
            return Err(format!("edge {} does not begin at node {}", edge.0, at.0));
        }
        at = dag.edge(edge).to;
    }
    if at == dag.exit() { Ok(()) } else { Err(format!("it ends at node {}, which is not the exit", at.0)) }
}

/// Number of paths from entry to exit over the marked edges.
fn count(dag: &Dag, marked: &[bool]) -> u128 {
    let mut paths = vec![0u128; dag.node_count()];
    paths[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let out = dag.out(node).iter().filter(|e| marked[e.index()]);
        paths[node.index()] = out.map(|e| paths[dag.edge(*e).to.index()]).fold(0, u128::saturating_add);
    }
    paths[dag.entry().index()]
}
