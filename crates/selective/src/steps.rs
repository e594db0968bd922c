//! Intermediate results of numberings, for display: the labels of precise selective profiling after each of its three steps (P3 paper,
//! figure 4), and the intervals, joins and critical nodes of preferential numbering (thesis, section 3.3.2).

use super::preferential::PathTrie;
use super::{InterestingSet, NumberingError};
use trodden_flow::numbering::{TooManyPaths, number_with_marked_edges_last, push_values_down, zero_unmarked_values};
use trodden_flow::{Dag, DagEdgeId, Node};

/// The steps of precise selective path profiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectiveSteps {
    /// Number of paths from each node to the exit (n_v in the paper).
    pub paths: Vec<u128>,
    /// Least number of an interesting path from each node to the exit (v.min in the paper).
    pub least: Vec<Option<i128>>,
    /// Labels after the first step.
    pub initial: Vec<i64>,
    /// Labels after they were pushed over nodes with one in-edge.
    pub moved: Vec<i64>,
    /// Edges whose labels become zero in the last step.
    pub absorbed: Vec<DagEdgeId>,
}

/// Computes the steps for all paths that consist of the edges of `set`.
pub fn selective_steps(dag: &Dag, set: &InterestingSet) -> Result<SelectiveSteps, TooManyPaths> {
    let initial = number_with_marked_edges_last(dag, set.edges(), true)?;
    let mut paths = vec![0u128; dag.node_count()];
    paths[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        paths[node.index()] = dag.out(node).iter().map(|e| paths[dag.edge(*e).to.index()]).sum();
    }
    let ranges = dag.min_and_max_sums_to_exit(|e| set.has(e).then_some(initial[e.index()]));
    let mut moved = initial.clone();
    // If every edge is interesting, nothing is pushed.
    if !set.edges().is_full() {
        push_values_down(dag, &mut moved);
    }
    let mut last = moved.clone();
    zero_unmarked_values(set.edges(), &mut last);
    let absorbed = dag.edge_ids().filter(|e| moved[e.index()] != last[e.index()]).collect();
    Ok(SelectiveSteps { paths, least: ranges.iter().map(|r| r.map(|(least, _)| least)).collect(), initial, moved, absorbed })
}

/// A step of preferential numbering: an edge, and a prefix by which interesting paths reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferentialStep {
    /// The edge that gets a value.
    pub edge: DagEdgeId,
    /// The path from the entry to the edge.
    pub prefix: Vec<DagEdgeId>,
    /// Least and greatest partial number after the edge.
    pub interval: (i64, i64),
    /// Total size of the prefix's intervals for the preceding out-edges (cis in the thesis).
    pub cumulative: i64,
    /// The value that the prefix requires.
    pub weight: i64,
    /// The edge's value, which is the greatest weight of all prefixes.
    pub value: i64,
}

/// Computes the steps of preferential numbering, from the exit on in the order of the out-edges. Also returns the critical nodes, where
/// interesting paths with the same prefix diverge.
pub fn preferential_steps(dag: &Dag, paths: &[Vec<DagEdgeId>]) -> Result<(Vec<PreferentialStep>, Vec<Node>), NumberingError> {
    let trie = PathTrie::new(dag, paths);
    let prefixes = trie.list_prefixes();
    let mut steps = Vec::new();
    let mut observe = |edge: DagEdgeId, prefix: usize, (interval, cumulative, value): ((i64, i64), i64, i64)| {
        let (prefix, weight) = (prefixes[prefix].clone(), cumulative - interval.0);
        steps.push(PreferentialStep { edge, prefix, interval, cumulative, weight, value });
    };
    trie.number_paths(dag, |_| {}, &mut observe)?;
    Ok((steps, trie.nodes_where_prefixes_diverge(dag)))
}
