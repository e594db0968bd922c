//! Verifies the paths of a function that one of several copies of a program counts, in two passes.
//!
//! Interesting paths have different numbers if, at each node, the intervals of the numbers through its interesting out-edges do not
//! overlap. Each path is counted once, with its number, under two conditions. On all paths to a node, the sum of values exceeds the
//! register by the same amount. At the counting edge, this amount and the sum of the values after the edge, which is the same on all
//! interesting continuations, equal the offset.
//!
//! This does not verify that other copies' paths are not counted in this copy's counters. Merging the copies detects that.

use crate::dag::{Dag, DagEdgeId};
use crate::part::Part;

/// A fault of a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartFault {
    /// Two interesting paths may have the same number.
    #[error("two interesting paths from node {0} to the exit may have the same number")]
    Numbers(u32),
    /// The register does not hold the path's number where it is counted.
    #[error("the increments of the path register along a path through edge {0} do not sum to the path's number")]
    Increments(u32),
    /// An interesting path is not counted, or is counted twice.
    #[error("an interesting path through edge {0} is not counted exactly once")]
    Counts(u32),
}

/// The least and the greatest number of the paths from a node to the exit.
type NumberInterval = (i128, i128);

/// Verifies that interesting paths have different numbers, and that each is counted once, with its number.
pub fn verify_part(dag: &Dag, part: &Part) -> Result<(), PartFault> {
    let region = |e: &&DagEdgeId| part.interesting.contains(**e);
    let mut numbers_to_exit: Vec<Option<NumberInterval>> = vec![None; dag.node_count()];
    numbers_to_exit[dag.exit().index()] = Some((0, 0));
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let of = |e: &DagEdgeId| {
            let (least, greatest) = numbers_to_exit[dag.edge(*e).to.index()]?;
            let value = i128::from(part.values[e.index()]);
            Some((least + value, greatest + value))
        };
        let mut intervals: Vec<NumberInterval> = dag.out(node).iter().filter(region).filter_map(of).collect();
        intervals.sort_unstable();
        if intervals.windows(2).any(|pair| pair[0].1 >= pair[1].0) {
            return Err(PartFault::Numbers(node.0));
        }
        numbers_to_exit[node.index()] = intervals.first().zip(intervals.last()).map(|(first, last)| (first.0, last.1));
    }
    check_counts(dag, part, &numbers_to_exit)
}

/// What is true of all interesting paths from the entry to a node.
#[derive(Clone, Copy, PartialEq)]
enum InterestingPathProgress {
    /// The paths are not counted yet. The sum of values exceeds the register by this amount.
    NotCounted(i128),
    Counted,
}

fn check_counts(dag: &Dag, part: &Part, numbers_to_exit: &[Option<NumberInterval>]) -> Result<(), PartFault> {
    let mut states: Vec<Option<InterestingPathProgress>> = vec![None; dag.node_count()];
    states[dag.entry().index()] = Some(InterestingPathProgress::NotCounted(0));
    for &node in dag.order() {
        let Some(state) = states[node.index()] else { continue };
        for &edge in dag.out(node).iter().filter(|e| part.interesting.contains(**e)) {
            let to = dag.edge(edge).to;
            let next = match (state, part.counted.contains(edge)) {
                (InterestingPathProgress::Counted, false) => InterestingPathProgress::Counted,
                (InterestingPathProgress::Counted, true) => return Err(PartFault::Counts(edge.0)),
                (InterestingPathProgress::NotCounted(ahead), counted) => {
                    let ahead = ahead + i128::from(part.values[edge.index()]) - i128::from(part.increments[edge.index()]);
                    match (counted, numbers_to_exit[to.index()]) {
                        (false, _) => InterestingPathProgress::NotCounted(ahead),
                        (true, Some((least, greatest))) if least == greatest && ahead + least == i128::from(part.offset) => {
                            InterestingPathProgress::Counted
                        }
                        (true, _) => return Err(PartFault::Increments(edge.0)),
                    }
                }
            };
            let known = states[to.index()].get_or_insert(next);
            match (*known == next, *known, next) {
                (true, ..) => {}
                (false, InterestingPathProgress::NotCounted(_), InterestingPathProgress::NotCounted(_)) => {
                    return Err(PartFault::Increments(edge.0));
                }
                (false, ..) => return Err(PartFault::Counts(edge.0)),
            }
        }
    }
    match states[dag.exit().index()] {
        Some(InterestingPathProgress::NotCounted(_)) => Err(PartFault::Counts(dag.incoming(dag.exit()).first().map_or(0, |e| e.0))),
        _ => Ok(()),
    }
}
