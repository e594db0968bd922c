//! The interesting paths that a scheme must distinguish, given as a list of paths or as a set of edges.
//!
//! SPP and PSPP (P3 paper, section 3.1) work on edges: all paths that consist of interesting edges, the *closure* of these edges, are
//! interesting. PPP and the table of known paths work on a list. A list also defines the set of its edges, whose closure may contain more
//! paths. A set of edges also defines the list of its closure, if that is short enough.
//!
//! Invariants: every edge of the set is on an interesting path; paths are sorted by Ball-Larus number and differ; there is at least one.

use super::NumberingError;
use trodden_flow::Numbering;
use trodden_flow::dag::{Dag, DagEdgeId, DagEdgeSet};
use trodden_flow::graph::Node;

/// Maximum number of interesting paths in a list.
pub const MAX_LISTED_PATHS: u64 = 1 << 20;

/// A set of interesting paths of a [`Dag`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestingSet {
    edges: DagEdgeSet,
    closure: u128,
    listed: Option<Vec<Vec<DagEdgeId>>>,
}

impl InterestingSet {
    /// Creates the set of all paths.
    pub fn all(dag: &Dag) -> InterestingSet {
        InterestingSet::from_edges(dag, &DagEdgeSet::full(dag.edges().len())).expect("a graph has a path")
    }

    /// Creates the set of the given paths. Fails if there is no path, or if a path does not lead from entry to exit.
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
        let edges = DagEdgeSet::from_members(dag.edges().len(), listed.iter().flatten().copied());
        let closure = count_paths(dag, &edges);
        Ok(InterestingSet { edges, closure, listed: Some(listed) })
    }

    /// Creates the set of the paths with these Ball-Larus numbers. Fails if there is no number, or if a number belongs to no path.
    pub fn from_ids(dag: &Dag, numbering: &Numbering, ids: &[u64]) -> Result<InterestingSet, NumberingError> {
        let path = |id: &u64| numbering.path(dag, *id).ok_or(NumberingError::NoSuchId { id: *id, paths: numbering.paths() });
        let paths: Vec<Vec<DagEdgeId>> = ids.iter().map(path).collect::<Result<_, _>>()?;
        InterestingSet::from_paths(dag, numbering, &paths)
    }

    /// Creates the set of all paths that consist of marked edges. Fails if there is no such path.
    pub fn from_edges(dag: &Dag, marked: &DagEdgeSet) -> Result<InterestingSet, NumberingError> {
        let edges = dag.edges_on_marked_paths(|e| marked.contains(e));
        match count_paths(dag, &edges) {
            0 => Err(NumberingError::NothingInteresting),
            closure => Ok(InterestingSet { edges, closure, listed: None }),
        }
    }

    /// Creates the set of all paths through all of these nodes. Every path that consists of edges of these paths is in the set. Fails if
    /// there is no such path.
    pub fn through(dag: &Dag, nodes: &[Node]) -> Result<InterestingSet, NumberingError> {
        let mut marked = DagEdgeSet::full(dag.edges().len());
        for &node in nodes {
            let (after, before) =
                (dag.nodes_reached_from(node, |e| marked.contains(e)), dag.nodes_leading_to(node, |e| marked.contains(e)));
            let is_passed = |id: DagEdgeId| after.contains(dag.edge(id).from) || before.contains(dag.edge(id).to);
            marked = DagEdgeSet::from_fn(marked.universe(), |id| marked.contains(id) && is_passed(id));
        }
        InterestingSet::from_edges(dag, &marked).map_err(|_| NumberingError::NoPathThrough { nodes: nodes.iter().map(|n| n.0).collect() })
    }

    /// Returns true if `edge` is on an interesting path.
    pub fn has(&self, edge: DagEdgeId) -> bool {
        self.edges.contains(edge)
    }

    /// Returns the edges on interesting paths.
    pub fn edges(&self) -> &DagEdgeSet {
        &self.edges
    }

    /// Returns the number of paths that consist of interesting edges.
    pub fn closure(&self) -> u128 {
        self.closure
    }

    /// Returns true if the set was given by its paths.
    pub fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// Returns the number of interesting paths: of the listed paths, or of all paths of interesting edges.
    pub fn count(&self) -> u128 {
        self.listed.as_ref().map_or(self.closure, |l| l.len() as u128)
    }

    /// Returns the set with the same edges in which all paths that consist of these edges are interesting.
    pub fn closed(&self) -> InterestingSet {
        InterestingSet { listed: None, ..self.clone() }
    }

    /// Returns the interesting paths, sorted by Ball-Larus number. Fails if there are more than [`MAX_LISTED_PATHS`].
    pub fn paths(&self, dag: &Dag) -> Result<Vec<Vec<DagEdgeId>>, NumberingError> {
        if let Some(listed) = &self.listed {
            return Ok(listed.clone());
        }
        if self.closure > u128::from(MAX_LISTED_PATHS) {
            return Err(NumberingError::TooManyInteresting { paths: self.closure, limit: MAX_LISTED_PATHS });
        }
        // Out-edges are visited in the order of the numbering, so paths are in the order of their numbers.
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

/// Checks that these edges form a path from the entry to the exit. The error says which edge is wrong.
fn check_path(dag: &Dag, path: &[DagEdgeId]) -> Result<(), String> {
    if let Some(bad) = path.iter().find(|e| e.index() >= dag.edges().len()) {
        return Err(format!("edge {} does not exist", bad.0));
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

/// Returns the number of paths that consist of marked edges, saturating at the maximum.
fn count_paths(dag: &Dag, marked: &DagEdgeSet) -> u128 {
    let mut paths = vec![0u128; dag.node_count()];
    paths[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let out = dag.out(node).iter().filter(|e| marked.contains(**e));
        paths[node.index()] = out.map(|e| paths[dag.edge(*e).to.index()]).fold(0, u128::saturating_add);
    }
    paths[dag.entry().index()]
}
