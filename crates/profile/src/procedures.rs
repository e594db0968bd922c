//! Converts functions and their profiles to [procedures](trodden_partition::Procedure): acyclic path graphs with the number of executions
//! of each edge. They are the input of the algorithms that divide a program's paths among several instrumented copies.

mod calls;
mod calls_of_program;
mod program;

pub use program::{ProcedureError, add_call_sites, add_estimates, build_edge_procedures, procedures};

use crate::paths::FunctionPaths;
use std::collections::HashSet;
use trodden_flow::frequency::{BranchHint, Frequencies, branch_weights};
use trodden_flow::part::PathEnds;
use trodden_flow::{Dag, DagEdge, DagEdgeId, DagEdgeSet, Edge, Node, Origin};
use trodden_partition::{ExecutedPath, Procedure};
use trodden_unit::{EdgeKind, FunctionMap, MapError};

/// Factor by which estimated frequencies, which are fractions, are multiplied before they are rounded to integers.
const ESTIMATED_FREQUENCY_SCALE: f64 = 1024.0;
/// Maximum of a scaled estimate. It keeps sums within 64 bits although nested loops and calls yield very high estimates.
const MAX_ESTIMATED_FREQUENCY: f64 = (1u64 << 48) as f64;

/// Converts a function and its counts, which are pairs of path ID and count. Fails if the map is corrupt, or an ID is out of range.
pub fn build_measured_procedure(function: &FunctionMap, counts: &[(u64, u64)]) -> Result<Procedure, MapError> {
    let dag = function.dag()?;
    let ends = PathCountingEdges::new(&dag);
    let mut frequencies = vec![0u64; dag.edges().len()];
    let mut add =
        |path: &[DagEdgeId], count: u64| path.iter().for_each(|e| frequencies[e.index()] = frequencies[e.index()].saturating_add(count));
    let decoded = FunctionPaths::decode(function, counts.iter().copied())?;
    // Negative counts of unfinished paths are taken as 0. They arise when forked processes complete paths that their parent began, and
    // these executions are already counted in the complete paths.
    decoded.all().for_each(|p| add(p.path, p.executions()));
    let complete =
        decoded.complete.iter().map(|p| ExecutedPath { end: ends.counting_edge_of_path(&p.path), count: p.count, in_passing: false });
    let mut paths: Vec<ExecutedPath> = complete.collect();
    // An execution that reached a call that may not return was counted before the call. The edges of this prefix are already part of a path
    // above, so only its `Reach` edge remains to be added.
    let complete_ids: HashSet<u64> = decoded.complete.iter().map(|p| p.id).collect();
    let numbering = function.numbering(&dag)?;
    for &(id, count) in counts.iter().filter(|(id, _)| !complete_ids.contains(id)) {
        let path = numbering.path(&dag, id).unwrap_or_default();
        add(path.last().map(std::slice::from_ref).unwrap_or_default(), count);
        paths.extend(path.last().map(|end| ExecutedPath { end: *end, count, in_passing: true }));
    }
    Ok(Procedure { dag, frequencies, paths, call_sites: None, unit: 0 })
}

/// Converts a function whose map was changed so that each path is a single edge ([`crate::copies::edges`]). `known` are the decoded paths
/// of the original function.
pub fn build_edge_procedure(function: &FunctionMap, known: &FunctionPaths) -> Result<Procedure, MapError> {
    let dag = function.dag()?;
    let executed = |node: Node| known.blocks.get(node.index()).copied().unwrap_or(0);
    let of = |edge: &DagEdge| match edge.origin {
        Origin::Real(e) if function.graph.kind(e) == EdgeKind::Reach => executed(edge.from),
        Origin::Real(e) | Origin::Leave(e) => known.edges.get(e.index()).copied().unwrap_or(0),
        Origin::Enter(_) => executed(edge.to),
        Origin::Stop(node) => executed(node),
    };
    let frequencies = dag.edges().iter().map(of).collect();
    Ok(Procedure { dag, frequencies, paths: Vec::new(), call_sites: None, unit: 0 })
}

/// Estimates how often each block and edge is executed per call of the function, from its loops and branches.
fn block_frequencies(function: &FunctionMap) -> Frequencies {
    let hint = |e: Edge| match function.graph.kind(e) {
        EdgeKind::Reach => BranchHint::Never,
        EdgeKind::Unwind | EdgeKind::NoReturn | EdgeKind::Resume => BranchHint::Cold,
        _ => BranchHint::None,
    };
    let hints: Vec<BranchHint> = function.graph.edges().map(hint).collect();
    Frequencies::estimate(&function.graph, &branch_weights(&function.graph, &hints))
}

/// Converts a function that has no counts into a procedure whose frequencies are estimated for the given number of calls.
pub fn build_estimated_procedure(function: &FunctionMap, calls: f64) -> Result<Procedure, MapError> {
    let (dag, estimate) = (function.dag()?, block_frequencies(function));
    let of = |edge: &DagEdge| match edge.origin {
        Origin::Real(e) if function.graph.kind(e) == EdgeKind::Reach => estimate.node(edge.from),
        Origin::Real(e) | Origin::Leave(e) => estimate.edge(e),
        // If several cut edges lead to the same block, their paths may begin at one shared edge.
        Origin::Enter(_) => {
            cut_edges_into(&dag, function, edge.to).map(|e| estimate.edge(e)).sum::<f64>() / count_entry_edges(&dag, edge.to)
        }
        Origin::Stop(node) => estimate.node(node),
    };
    let frequencies =
        dag.edges().iter().map(|e| (of(e) * calls * ESTIMATED_FREQUENCY_SCALE).round().min(MAX_ESTIMATED_FREQUENCY) as u64).collect();
    Ok(Procedure { dag, frequencies, paths: Vec::new(), call_sites: None, unit: 0 })
}

fn cut_edges_into<'a>(dag: &'a Dag, function: &'a FunctionMap, head: Node) -> impl Iterator<Item = Edge> + 'a {
    dag.cuts().iter().map(|c| c.edge).filter(move |e| function.graph.to(*e) == head)
}

/// Returns the number of edges at which paths that start in the block begin, but at least 1, because it is used as a divisor.
fn count_entry_edges(dag: &Dag, head: Node) -> f64 {
    dag.incoming(head).iter().filter(|e| matches!(dag.edge(**e).origin, Origin::Enter(_))).count().max(1) as f64
}

struct PathCountingEdges {
    ends: DagEdgeSet,
}

impl PathCountingEdges {
    fn new(dag: &Dag) -> PathCountingEdges {
        PathCountingEdges { ends: DagEdgeSet::from_members(dag.edges().len(), PathEnds::from_dag(dag).edges().iter().copied()) }
    }

    fn counting_edge_of_path(&self, path: &[DagEdgeId]) -> DagEdgeId {
        *path.iter().find(|e| self.ends.contains(**e)).expect("every path has an edge where it is counted")
    }
}
