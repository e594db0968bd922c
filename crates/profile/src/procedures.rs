//! A profile as the procedures that [partitions](trodden_flow::partition) are made of: how often each edge of each path graph was taken.

use crate::paths::{FunctionPaths};
use std::collections::HashSet;
use trodden_flow::partition::{Ends, ExecutedPath, Procedure};
use trodden_flow::{Dag, DagEdgeId, Numbering};
use trodden_unit::{FunctionMap, MapError};

/// The procedure of a function with its counts, by path number.
///
/// # Errors
/// The map is damaged, or a number is out of range.
pub fn procedure(function: &FunctionMap, counts: &[(u64, u64)]) -> Result<Procedure, MapError> {
    let dag = function.dag()?;
    let ends = EndOf::new(&dag);
    let mut frequencies = vec![0u64; dag.edges().len()];
    let mut add = |path: &[DagEdgeId], count: u64| path.iter().for_each(|e| frequencies[e.index()] = frequencies[e.index()].saturating_add(count));
    let decoded = FunctionPaths::decode(function, counts.iter().copied())?;
    decoded.complete.iter().for_each(|p| add(&p.path, p.count));
    // A process that forked may have completed what its parent began: that is counted among the complete ones.
    decoded.unfinished.iter().for_each(|p| add(&p.path, u64::try_from(p.count).unwrap_or(0)));
    let complete = decoded.complete.iter().map(|p| ExecutedPath { end: ends.of(&p.path), count: p.count, in_passing: false });
    let mut paths: Vec<ExecutedPath> = complete.collect();
    // What came to a call that might not return was counted there as well, and only the edge of that count is another than those of the path that goes on.
    let whole: HashSet<u64> = decoded.complete.iter().map(|p| p.id).collect();
    let numbering = Numbering::from_values(&dag, &function.values).map_err(|what| MapError::Inconsistent { function: function.name.clone(), what })?;
    for &(id, count) in counts.iter().filter(|(id, _)| !whole.contains(id)) {
        let path = numbering.path(&dag, id).unwrap_or_default();
        add(path.last().map(std::slice::from_ref).unwrap_or_default(), count);
        paths.extend(path.last().map(|end| ExecutedPath { end: *end, count, in_passing: true }));
    }
    Ok(Procedure { dag, frequencies, paths, call_sites: None })
}

/// The end of each path.
struct EndOf {
    is_end: Vec<bool>,
}

impl EndOf {
    fn new(dag: &Dag) -> EndOf {
        let mut is_end = vec![false; dag.edges().len()];
        Ends::of(dag).edges().iter().for_each(|e| is_end[e.index()] = true);
        EndOf { is_end }
    }

    fn of(&self, path: &[DagEdgeId]) -> DagEdgeId {
        *path.iter().find(|e| self.is_end[e.index()]).expect("every path takes an end")
    }
}
