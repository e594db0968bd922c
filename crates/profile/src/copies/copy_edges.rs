//! Translates a copy's paths to those of the program: the copy's graph has a subset of the function's edges, in the same order.

use trodden_flow::DagEdgeId;
use trodden_unit::FunctionMap;

/// Maps the edges of a copy's graph to those of the program's graph.
#[derive(Clone, Debug)]
pub struct CopyEdges {
    /// For each edge of the program's graph, whether the copy has it.
    edges: Vec<bool>,
    /// For each edge of the copy's graph, its index in the program's graph.
    program_edges: Vec<usize>,
}

impl CopyEdges {
    /// Matches the edges; `None` if the copy's function differs from the program's.
    pub fn new(function: &FunctionMap, own: &FunctionMap) -> Option<CopyEdges> {
        let mut rest = function.dag.iter().enumerate();
        let program_edges: Option<Vec<usize>> = own.dag.iter().map(|e| rest.find(|(_, known)| *known == e).map(|(at, _)| at)).collect();
        let program_edges = program_edges.filter(|_| own.shape == function.shape)?;
        let mut edges = vec![false; function.dag.len()];
        program_edges.iter().for_each(|at| edges[*at] = true);
        Some(CopyEdges { edges, program_edges })
    }

    /// Returns the program's ID of a path of the copy's graph.
    pub fn program_id(&self, function: &FunctionMap, own: &[DagEdgeId]) -> u64 {
        own.iter().map(|e| function.values[self.program_edges[e.index()]]).sum::<i64>() as u64
    }

    /// Returns whether the copy counts a path of the program's graph.
    pub fn contains(&self, path: &[DagEdgeId]) -> bool {
        path.iter().all(|e| self.edges[e.index()])
    }
}
