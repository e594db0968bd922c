//! Cross-checks: paths that all copies of a program count, so that a difference between the executions of the copies is detected.
//!
//! Copies that count different paths cannot be compared. So all copies count some procedures that otherwise a single copy would count, if
//! the cost is small. Of such a procedure, they count only paths with rarely executed [ends](trodden_flow::part::PathEnds), such as a hash
//! table collision or a slow path, because executions usually diverge there first.
//!
//! Invariants: existing parts are not changed. The cross-checks of a copy cost at most [`CROSS_CHECK_BUDGET_PERCENT`] of the hits
//! (executions of probes) of the slowest copy plus [`CROSS_CHECK_EXTRA_BUDGET_HITS`] hits. O(edges) for each procedure and each halving of
//! its ends.

use super::{CopyPlan, PartitionPlan, Procedure, hits};
use trodden_flow::dag::DagEdgeId;
use trodden_flow::part::{Measure, Part, PathEnds};

/// The hottest procedure may use two thirds of the budget, and each further procedure 1/8 of what remains. With 1/2, half as many
/// procedures of two of four programs are checked; with 1/32, 4 to 14% fewer of three programs (docs/benchmarks/constants.md).
const REMAINING_BUDGET_DIVISOR: u64 = 8;
/// The budget for cross-checks, in percent of the slowest copy's hits. With 1, up to 16% fewer procedures of four programs are checked;
/// with 10, up to 13% more (docs/benchmarks/constants.md).
const CROSS_CHECK_BUDGET_PERCENT: u64 = 3;
/// Additional budget in hits, so that short runs are checked, too. With 0, the results for four programs are the same.
const CROSS_CHECK_EXTRA_BUDGET_HITS: u64 = 256;

/// Adds cross-checks to a plan: parts of procedures that all copies then count.
pub fn add_cross_checks(procedures: &[Procedure], plan: &mut PartitionPlan, measure: Measure) {
    if plan.copies.len() < 2 {
        return;
    }
    let mut budget = hits::slowest_copy_hits(procedures, plan, measure) / 100 * CROSS_CHECK_BUDGET_PERCENT + CROSS_CHECK_EXTRA_BUDGET_HITS;
    let mut candidates: Vec<usize> = (0..procedures.len()).filter(|at| is_counted_by_one_copy(&plan.copies, *at)).collect();
    candidates.sort_by_key(|at| (std::cmp::Reverse(count_path_executions(&procedures[*at])), *at));
    let mut is_first = true;
    for at in candidates.into_iter().filter(|at| count_path_executions(&procedures[*at]) > 0) {
        let max_cost = if is_first { budget / 3 * 2 } else { budget / REMAINING_BUDGET_DIVISOR };
        let Some((part, cost)) = affordable_part(&procedures[at], max_cost, measure) else { continue };
        let others = plan.copies.iter_mut().map(|copy| &mut copy.parts[at]).filter(|part| part.is_none());
        others.for_each(|place| *place = Some(part.clone()));
        budget -= cost;
        is_first = false;
    }
}

fn is_counted_by_one_copy(copies: &[CopyPlan], at: usize) -> bool {
    copies.iter().filter(|copy| copy.parts[at].is_some()).count() == 1
}

fn count_path_executions(procedure: &Procedure) -> u64 {
    let ends = PathEnds::from_dag(&procedure.dag);
    ends.edges().iter().fold(0, |sum: u64, end| sum.saturating_add(procedure.frequencies[end.index()]))
}

/// Returns a part of a procedure that costs at most `max_cost` hits, and its cost. Starts with all executed ends of paths, and drops the
/// more frequent half until the rest fits. Returns `None` if not even one end fits.
fn affordable_part(procedure: &Procedure, max_cost: u64, measure: Measure) -> Option<(Part, u64)> {
    let mut ends: Vec<DagEdgeId> = PathEnds::from_dag(&procedure.dag).edges().to_vec();
    let executed = |end: &DagEdgeId| procedure.frequencies[end.index()];
    ends.retain(|end| executed(end) > 0);
    ends.sort_by_key(|end| (executed(end), *end));
    while !ends.is_empty() {
        let part = Part::counting_paths_with_ends(&procedure.dag, &ends, &procedure.frequencies, measure);
        let cost = hits::part_hits(procedure, &part).of(measure);
        if cost <= max_cost {
            return Some((part, cost));
        }
        ends.truncate(ends.len() / 2);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{PartitionOptions, PartitionStrategy, ProfitableProcedures, plan};
    use super::*;
    use trodden_flow::dag::{Dag, DagEdgeId, Entries};
    use trodden_flow::graph::{Graph, Node};

    fn procedure(often: u64, seldom: u64) -> Procedure {
        let graph = Graph::new(3, Node(0), Node(2), vec![(Node(0), Node(1)), (Node(0), Node(1)), (Node(1), Node(2))]).unwrap();
        let dag = Dag::new(&graph, &[], Entries::PerEdge);
        Procedure { dag, frequencies: vec![often, seldom, often + seldom], paths: Vec::new(), call_sites: None, unit: 0 }
    }

    /// Returns which of the branch's two edges a copy counts.
    fn counted_branch_edges(copy: &CopyPlan, at: usize) -> Vec<DagEdgeId> {
        let part = copy.parts[at].as_ref();
        part.map_or(Vec::new(), |part| part.counted.iter().filter(|edge| edge.0 < 2).collect())
    }

    #[test]
    fn rarely_executed_ends_are_counted_by_all_copies() {
        let procedures = [procedure(100_000, 30), procedure(900_000, 800_000), procedure(0, 0), procedure(10, 10)];
        let options = PartitionOptions { copies: 3, profitable: ProfitableProcedures::default(), fold_again: false, measure: Measure::All };
        let before = plan(&procedures, PartitionStrategy::Pbl, &options);
        let mut after = before.clone();
        add_cross_checks(&procedures, &mut after, options.measure);
        let slowest = hits::slowest_copy_hits(&procedures, &before, options.measure);
        for (copy, (old, new)) in before.copies.iter().zip(&after.copies).enumerate() {
            for at in 0..procedures.len() {
                match &old.parts[at] {
                    Some(part) => assert_eq!(Some(part), new.parts[at].as_ref(), "copy {copy} counts the same paths as before"),
                    None if at == 0 => assert_eq!(counted_branch_edges(new, at), [DagEdgeId(1)], "only the rare edge"),
                    None if at == 3 => assert_eq!(counted_branch_edges(new, at), [DagEdgeId(0), DagEdgeId(1)]),
                    // These procedures are too expensive to check, or never executed.
                    None => assert!(new.parts[at].is_none()),
                }
            }
            let cost = hits::copy_hits(&procedures, new).all - hits::copy_hits(&procedures, old).all;
            assert!(cost <= slowest / 100 * CROSS_CHECK_BUDGET_PERCENT + CROSS_CHECK_EXTRA_BUDGET_HITS, "{cost}");
        }
        let mut one = plan(&procedures, PartitionStrategy::Sbl, &PartitionOptions { copies: 1, ..options });
        let single = one.copies[0].parts.clone();
        add_cross_checks(&procedures, &mut one, options.measure);
        assert_eq!(one.copies[0].parts, single);
    }

    #[test]
    fn budget_is_used_up() {
        let mut procedures = vec![procedure(900_000, 800_000)];
        procedures.extend((0..300).map(|at| procedure(10 + at, 10)));
        let options = PartitionOptions { copies: 2, profitable: ProfitableProcedures::default(), fold_again: false, measure: Measure::All };
        let mut plan = plan(&procedures, PartitionStrategy::Pbl, &options);
        add_cross_checks(&procedures, &mut plan, options.measure);
        let checked = (1..procedures.len()).filter(|at| plan.copies.iter().all(|copy| copy.parts[*at].is_some())).count();
        assert!(checked > 290, "{checked} of 300");
    }
}
