//! Verifies one copy's part of a function's paths, in two passes.
//!
//! Interesting paths have distinct numbers if, at each node, the number intervals of its interesting out-edges do not overlap. Each path
//! is counted once and under its number if the register lags behind the sum of values by the same amount on all paths to a node, and if
//! the offset and the values after the counting edge, equal on all interesting continuations, make up for that.
//!
//! Whether paths of other copies are counted in this copy's counters is not verified here; merging the copies detects that.

use crate::dag::{Dag, DagEdgeId};
use crate::part::Part;

/// What is wrong with a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartFault {
    /// Two interesting paths may have the same number.
    #[error("numbers of interesting paths from node {0} to the exit overlap")]
    Numbers(u32),
    /// The register does not hold the path's number where it is counted.
    #[error("the increments on the path through edge {0} do not add up to the numbers")]
    Increments(u32),
    /// An interesting path is not counted, or is counted twice.
    #[error("interesting paths through edge {0} are not counted once")]
    Counts(u32),
}

/// The least and the greatest number of the paths from a node to the exit.
type Interval = (i128, i128);

/// Proves that each interesting path has a number of its own and is counted once, under this number.
///
/// # Errors
/// The first node or edge at which the proof fails.
pub fn verify_part(dag: &Dag, part: &Part) -> Result<(), PartFault> {
    let region = |e: &&DagEdgeId| part.interesting[e.index()];
    let mut numbers_to_exit: Vec<Option<Interval>> = vec![None; dag.node_count()];
    numbers_to_exit[dag.exit().index()] = Some((0, 0));
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let of = |e: &DagEdgeId| {
            let (least, greatest) = numbers_to_exit[dag.edge(*e).to.index()]?;
            let value = i128::from(part.values[e.index()]);
            Some((least + value, greatest + value))
        };
        let mut intervals: Vec<Interval> = dag.out(node).iter().filter(region).filter_map(of).collect();
        intervals.sort_unstable();
        if intervals.windows(2).any(|pair| pair[0].1 >= pair[1].0) {
            return Err(PartFault::Numbers(node.0));
        }
        numbers_to_exit[node.index()] = intervals.first().zip(intervals.last()).map(|(first, last)| (first.0, last.1));
    }
    check_counts(dag, part, &numbers_to_exit)
}

/// What holds for all interesting paths to a node.
#[derive(Clone, Copy, PartialEq)]
enum PartCheckState {
    /// They are not counted yet; the sum of values exceeds the register by this amount.
    Open(i128),
    Counted,
}

fn check_counts(dag: &Dag, part: &Part, numbers_to_exit: &[Option<Interval>]) -> Result<(), PartFault> {
    let mut states: Vec<Option<PartCheckState>> = vec![None; dag.node_count()];
    states[dag.entry().index()] = Some(PartCheckState::Open(0));
    for &node in dag.order() {
        let Some(state) = states[node.index()] else { continue };
        for &edge in dag.out(node).iter().filter(|e| part.interesting[e.index()]) {
            let to = dag.edge(edge).to;
            let next = match (state, part.counted[edge.index()]) {
                (PartCheckState::Counted, false) => PartCheckState::Counted,
                (PartCheckState::Counted, true) => return Err(PartFault::Counts(edge.0)),
                (PartCheckState::Open(ahead), counted) => {
                    let ahead = ahead + i128::from(part.values[edge.index()]) - i128::from(part.increments[edge.index()]);
                    match (counted, numbers_to_exit[to.index()]) {
                        (false, _) => PartCheckState::Open(ahead),
                        (true, Some((least, greatest))) if least == greatest && ahead + least == i128::from(part.offset) => {
                            PartCheckState::Counted
                        }
                        (true, _) => return Err(PartFault::Increments(edge.0)),
                    }
                }
            };
            let known = states[to.index()].get_or_insert(next);
            match (*known == next, *known, next) {
                (true, ..) => {}
                (false, PartCheckState::Open(_), PartCheckState::Open(_)) => return Err(PartFault::Increments(edge.0)),
                (false, ..) => return Err(PartFault::Counts(edge.0)),
            }
        }
    }
    match states[dag.exit().index()] {
        Some(PartCheckState::Open(_)) => Err(PartFault::Counts(dag.incoming(dag.exit()).first().map_or(0, |e| e.0))),
        _ => Ok(()),
    }
}
