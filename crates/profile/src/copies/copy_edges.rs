//! Translates a copy's paths to those of the program: the copy's graph has a subset of the function's edges, in the same order.

use trodden_flow::DagEdgeId;
use trodden_unit::FunctionMap;

/// Relation of a copy's edges to those of the program's graph.
#[derive(Clone, Debug)]
pub struct CopyEdges {
    /// For each edge of the program's graph, whether the copy has it.
    edges: Vec<bool>,
    /// For each edge of the copy's graph, its index in the program's graph.
    places: Vec<usize>,
}

impl CopyEdges {
    /// Matches the edges; `None` if the copy's function differs from the program's.
    pub fn new(function: &FunctionMap, own: &FunctionMap) -> Option<CopyEdges> {
        let mut rest = function.dag.iter().enumerate();
        let places: Option<Vec<usize>> = own.dag.iter().map(|e| rest.find(|(_, known)| *known == e).map(|(at, _)| at)).collect();
        let places = places.filter(|_| own.shape == function.shape)?;
        let mut edges = vec![false; function.dag.len()];
        places.iter().for_each(|at| edges[*at] = true);
        Some(CopyEdges { edges, places })
    }

    /// Returns the program's ID of a path that is given by edges of the copy's graph.
    pub fn number(&self, function: &FunctionMap, own: &[DagEdgeId]) -> u64 {
        own.iter().map(|e| function.values[self.places[e.index()]]).sum::<i64>() as u64
    }

    /// Returns whether the copy counts a path that is given by edges of the program's graph.
    pub fn has(&self, path: &[DagEdgeId]) -> bool {
        path.iter().all(|e| self.edges[e.index()])
    }
}
