//! Finds pairs of edges that are each taken often, but never on the same path.
//!
//! The branch of the second edge was executed after the first edge, so the graph has a path with both edges. If the two were independent,
//! that path would have been executed many times. Either no test covers the case, or it is impossible although there is code for it; only
//! the source can tell. For each second edge, the first edge whose absence is least likely to be chance is reported. Branches with a
//! [`CorrelatedBranches`] finding are skipped.

use super::AdviseOptions;
use super::correlated::CorrelatedBranches;
use super::nest::enters_loop;
use super::pairs::BranchPairs;
use super::statistics::surprise_of_empty_draw;
use super::walks::ExecutedPaths;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{Edge, Node};

/// Minimum expected number of executions of both edges on the same path, if the edges were independent.
const MIN_EXPECTED_EXECUTIONS: f64 = 100.0;
/// Minimum share that the second edge has of its branch's executions. A rarer edge is an exception rather than a normal case.
const MIN_SECOND_EDGE_SHARE: f64 = 0.01;
/// Minimum share of the second branch's executions that come after the first edge.
const MIN_SHARE_AFTER_FIRST: f64 = 0.05;

/// Two edges that were never taken on the same path.
#[derive(Clone, Debug, PartialEq)]
pub struct NeverTogether {
    /// The first edge.
    pub first: Edge,
    /// The second edge, an outcome of a branch that was executed after the first edge.
    pub second: Edge,
    /// Number of executions of the first edge.
    pub first_count: u64,
    /// Number of executions of the second edge.
    pub second_count: u64,
    /// Number of executions of the second edge's branch.
    pub executions: u64,
    /// Number of executions of the second edge's branch after the first edge.
    pub after_first: u64,
    /// Expected executions of both edges on the same path if the edges were independent.
    pub expected: f64,
    /// Negated decimal logarithm of the probability that independent edges would never have been taken together.
    pub surprise: f64,
}

/// Finds all pairs of edges in a function that are frequent but never occur together.
pub fn find(
    walks: &ExecutedPaths,
    pairs: &BranchPairs,
    nest: &BTreeMap<Node, BTreeSet<Node>>,
    excluded: &[CorrelatedBranches],
    options: &AdviseOptions,
) -> Vec<NeverTogether> {
    let excluded: BTreeSet<Node> = excluded.iter().map(|c| c.later).collect();
    let mut found = Vec::new();
    for (&later, tables) in pairs.tables.iter().filter(|(later, _)| !excluded.contains(later)) {
        let edges = walks.taken_edges(later);
        let executions: u64 = edges.iter().map(|e| walks.edges[e.index()]).sum();
        for second in edges {
            let second_count = walks.edges[second.index()];
            if second_count < options.min_count || (second_count as f64) < MIN_SECOND_EDGE_SHARE * executions as f64 {
                continue;
            }
            let mut best: Option<NeverTogether> = None;
            // A loop's first iteration often takes different edges than later iterations, which does not indicate an untested case.
            for table in tables.iter().filter(|(earlier, _)| !enters_loop(nest, **earlier, later)).map(|(_, table)| table) {
                for (first, after_first) in table.by_earlier() {
                    if table.cells.contains_key(&(first, second)) || (after_first as f64) < MIN_SHARE_AFTER_FIRST * executions as f64 {
                        continue;
                    }
                    let expected = after_first as f64 * second_count as f64 / executions as f64;
                    let surprise = surprise_of_empty_draw(executions, after_first, second_count);
                    let never = NeverTogether {
                        first,
                        second,
                        first_count: walks.edges[first.index()],
                        second_count,
                        executions,
                        after_first,
                        expected,
                        surprise,
                    };
                    if expected >= MIN_EXPECTED_EXECUTIONS && best.as_ref().is_none_or(|b| surprise > b.surprise) {
                        best = Some(never);
                    }
                }
            }
            found.extend(best);
        }
    }
    found
}
