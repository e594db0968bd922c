//! Finds a copy's paths among all paths of a function: the copy's graph has some of the function's edges, in the same order.

use trodden_flow::DagEdgeId;
use trodden_unit::FunctionMap;

/// The relation of a copy's edges to the edges of the graph of all paths.
#[derive(Clone, Debug)]
pub struct Within {
    /// For each edge of the graph of all paths: whether it is on a path of the copy.
    edges: Vec<bool>,
    /// For each edge of the copy's graph its number in the graph of all paths.
    places: Vec<usize>,
}

impl Within {
    /// `None` if the copy's function differs from the program's.
    pub fn new(function: &FunctionMap, own: &FunctionMap) -> Option<Within> {
        let mut rest = function.dag.iter().enumerate();
        let places: Option<Vec<usize>> = own.dag.iter().map(|e| rest.find(|(_, known)| *known == e).map(|(at, _)| at)).collect();
        let places = places.filter(|_| own.shape == function.shape)?;
        let mut edges = vec![false; function.dag.len()];
        places.iter().for_each(|at| edges[*at] = true);
        Some(Within { edges, places })
    }

    /// The number among all paths of a path of the copy, which is given by edges of the copy's graph.
    pub fn number(&self, function: &FunctionMap, own: &[DagEdgeId]) -> u64 {
        own.iter().map(|e| function.values[self.places[e.index()]]).sum::<i64>() as u64
    }

    /// Whether the copy counts a path, which is given by edges of the graph of all.
    pub fn has(&self, path: &[DagEdgeId]) -> bool {
        path.iter().all(|e| self.edges[e.index()])
    }
}
