//! Pairs of edges that are each taken often, and never on one path.
//!
//! The later branch was executed after the first edge, so the graph has a path with both edges. If the two were independent, that path
//! would have been executed many times. Either no test covers the case, or the case cannot happen although there is code for it. Only the
//! source can show which.
//!
//! For each later edge the least likely first edge is reported. A branch with a [`Correlated`] finding has none.

use super::AdviseOptions;
use super::correlated::Correlated;
use super::nest::enters_loop;
use super::pairs::Pairs;
use super::statistics::surprise_of_none;
use super::walks::Walks;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{Edge, Node};

/// The least expected executions of both, for a pair to be reported.
const EXPECTED: f64 = 100.0;
/// A second edge taken at a smaller share of its branch is an exception rather than a case.
const RARE: f64 = 0.01;
/// The least share of the second branch's executions that are after the first edge.
const SELDOM_BEHIND: f64 = 0.05;

/// Two edges that were never taken on one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Never {
    /// The first.
    pub first: Edge,
    /// The second, of a branch that was executed after the first.
    pub second: Edge,
    /// How often the first was taken.
    pub first_count: u64,
    /// How often the second was taken.
    pub second_count: u64,
    /// How often the second's branch was executed.
    pub executions: u64,
    /// How often it was executed after the first edge.
    pub after_first: u64,
    /// Expected executions of both if the second's branch were independent of the first edge.
    pub expected: f64,
    /// The negated decimal logarithm of the probability of 0 executions, if executions were drawn at random.
    pub surprise: f64,
}

/// All such pairs of a function.
pub fn find(
    walks: &Walks,
    pairs: &Pairs,
    nest: &BTreeMap<Node, BTreeSet<Node>>,
    excluded: &[Correlated],
    options: &AdviseOptions,
) -> Vec<Never> {
    let excluded: BTreeSet<Node> = excluded.iter().map(|c| c.later).collect();
    let mut found = Vec::new();
    for (&later, tables) in pairs.tables.iter().filter(|(later, _)| !excluded.contains(later)) {
        let edges = walks.taken_edges(later);
        let executions: u64 = edges.iter().map(|e| walks.edges[e.index()]).sum();
        for second in edges {
            let second_count = walks.edges[second.index()];
            if second_count < options.min_count || (second_count as f64) < RARE * executions as f64 {
                continue;
            }
            let mut best: Option<Never> = None;
            // The first iteration of a loop often takes other edges than later ones: that is no untested case.
            for table in tables.iter().filter(|(earlier, _)| !enters_loop(nest, **earlier, later)).map(|(_, table)| table) {
                for (first, after_first) in table.by_earlier() {
                    if table.cells.contains_key(&(first, second)) || (after_first as f64) < SELDOM_BEHIND * executions as f64 {
                        continue;
                    }
                    let expected = after_first as f64 * second_count as f64 / executions as f64;
                    let surprise = surprise_of_none(executions, after_first, second_count);
                    let never = Never {
                        first,
                        second,
                        first_count: walks.edges[first.index()],
                        second_count,
                        executions,
                        after_first,
                        expected,
                        surprise,
                    };
                    if expected >= EXPECTED && best.as_ref().is_none_or(|b| surprise > b.surprise) {
                        best = Some(never);
                    }
                }
            }
            found.extend(best);
        }
    }
    found
}
