//! Translates paths of an instrumented copy to paths of the original program. The copy's graph has a subset of the edges of the program's
//! graph, in the same order.

use trodden_flow::{DagEdgeId, DagEdgeSet};
use trodden_unit::FunctionMap;

/// A mapping from the edges of a copy's graph to the edges of the program's graph.
#[derive(Clone, Debug)]
pub struct CopyToProgramEdges {
    /// The edges of the program's graph that the copy's graph also has.
    edges: DagEdgeSet,
    /// For each edge of the copy's graph, the corresponding edge of the program's graph.
    program_edges: Vec<DagEdgeId>,
}

impl CopyToProgramEdges {
    /// Matches the edges of `own`, a function of a copy, with the edges of the same function of the program. `None` if they are not the
    /// same function.
    pub fn new(function: &FunctionMap, own: &FunctionMap) -> Option<CopyToProgramEdges> {
        let mut rest = (0..).map(DagEdgeId).zip(&function.dag);
        let program_edges: Option<Vec<DagEdgeId>> = own.dag.iter().map(|e| rest.find(|(_, known)| *known == e).map(|(at, _)| at)).collect();
        let program_edges = program_edges.filter(|_| own.shape == function.shape)?;
        let edges = DagEdgeSet::from_members(function.dag.len(), program_edges.iter().copied());
        Some(CopyToProgramEdges { edges, program_edges })
    }

    /// Returns the path ID in the program's numbering for a path of the copy's graph.
    pub fn program_path_id(&self, function: &FunctionMap, own: &[DagEdgeId]) -> u64 {
        own.iter().map(|e| function.values[self.program_edges[e.index()].index()]).sum::<i64>() as u64
    }

    /// Returns whether the copy counts the given path of the program's graph, which it does if it has all the path's edges.
    pub fn contains(&self, path: &[DagEdgeId]) -> bool {
        path.iter().all(|e| self.edges.contains(*e))
    }
}
