//! Pairs of edges that are each taken often, and never on one path.
//!
//! The later branch was reached behind the first edge, so the graph has a path with both; had the later branch decided
//! as it does at large, that path would have been executed many times. Such a pair is a case that no test has, or one
//! that cannot happen and for which code stands all the same. Which of the two, only the source can say.
//!
//! Of a later edge the most surprising first edge is told, and none where a [`Correlated`] finding tells of the branch.

use super::AdviseOptions;
use super::correlated::Correlated;
use super::nest::enters_loop;
use super::pairs::Pairs;
use super::statistics::surprise_of_none;
use super::walks::Walks;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{Edge, Node};

/// Executions of both that chance would give, at least, for a pair to be told of.
const EXPECTED: f64 = 100.0;
/// A second edge taken at a smaller share of its branch is an exception rather than a case.
const RARE: f64 = 0.01;
/// Share of the second branch's executions that are behind the first edge, at least.
const SELDOM_BEHIND: f64 = 0.05;

/// Two edges that were never taken on one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Never {
    /// The first.
    pub first: Edge,
    /// The second, of a branch that was executed behind the first.
    pub second: Edge,
    /// How often the first was taken.
    pub first_count: u64,
    /// How often the second was taken.
    pub second_count: u64,
    /// How often the second's branch was executed.
    pub executions: u64,
    /// How often it was executed behind the first edge.
    pub behind_first: u64,
    /// How often both would have been taken, had the second's branch decided behind the first edge as at large.
    pub expected: f64,
    /// How unlikely that is by chance: the negated decimal logarithm of the probability if executions were drawn at random.
    pub surprise: f64,
}

/// All such pairs of a function.
pub fn find(
    walks: &Walks,
    pairs: &Pairs,
    nest: &BTreeMap<Node, BTreeSet<Node>>,
    told: &[Correlated],
    options: &AdviseOptions,
) -> Vec<Never> {
    let told: BTreeSet<Node> = told.iter().map(|c| c.later).collect();
    let mut found = Vec::new();
    for (&later, tables) in pairs.tables.iter().filter(|(later, _)| !told.contains(later)) {
        let ways = walks.ways(later);
        let executions: u64 = ways.iter().map(|e| walks.edges[e.index()]).sum();
        for second in ways {
            let second_count = walks.edges[second.index()];
            if second_count < options.min_count || (second_count as f64) < RARE * executions as f64 {
                continue;
            }
            let mut best: Option<Never> = None;
            // The first round of a loop has its own ways: that is no case to test.
            for table in tables.iter().filter(|(earlier, _)| !enters_loop(nest, **earlier, later)).map(|(_, table)| table) {
                for (first, behind_first) in table.by_earlier() {
                    if table.cells.contains_key(&(first, second)) || (behind_first as f64) < SELDOM_BEHIND * executions as f64 {
                        continue;
                    }
                    let expected = behind_first as f64 * second_count as f64 / executions as f64;
                    let surprise = surprise_of_none(executions, behind_first, second_count);
                    let never = Never {
                        first,
                        second,
                        first_count: walks.edges[first.index()],
                        second_count,
                        executions,
                        behind_first,
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
