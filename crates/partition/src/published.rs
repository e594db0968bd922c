//! The published strategies: sequential Ball-Larus, parallel Ball-Larus, and partitioned path profiling (P3).
//!
//! Source: Afraz, Saha and Kanade (2015), algorithm 2 and section 4.1. The cost of a task is its number of probes. Tasks go to the copy
//! with the least load, the most expensive first. Equally expensive tasks are ordered by the number of their procedure. Frequencies are
//! used only to place labels on chords that are executed less.

use super::tasks::{are_too_many_tasks, tasks};
use super::{CopyPlan, PartitionOptions, PartitionPlan, Procedure};
use trodden_flow::dag::DagEdgeSet;
use trodden_flow::part::{Measure, Part};

/// A set of paths of a procedure: all of them (`edges` is `None`), or those within a set of edges.
struct PathTask {
    procedure: usize,
    edges: Option<DagEdgeSet>,
    cost: usize,
}

/// Sequential Ball-Larus: assigns all paths to the first copy.
pub fn plan_by_sequential_ball_larus(procedures: &[Procedure], options: &PartitionOptions) -> PartitionPlan {
    let mut copies = vec![CopyPlan { parts: vec![None; procedures.len()] }; options.copies.max(1)];
    copies[0].parts = procedures.iter().map(|p| part_of_all_paths(p, options.measure)).collect();
    PartitionPlan { copies, profitable: 0 }
}

/// Parallel Ball-Larus: assigns all paths of each procedure to one copy.
pub fn plan_by_parallel_ball_larus(procedures: &[Procedure], options: &PartitionOptions) -> PartitionPlan {
    let all = procedures.iter().enumerate().map(|(at, procedure)| task_of_all_paths(at, procedure)).collect();
    PartitionPlan { copies: distribute_tasks_greedily(procedures, all, options), profitable: 0 }
}

/// Partitioned path profiling: divides the procedures that have few enough call sites and several tasks, but not [too
/// many](are_too_many_tasks). All paths of any other procedure go to one copy.
pub fn plan_by_partitioned_profiling(procedures: &[Procedure], options: &PartitionOptions) -> PartitionPlan {
    let mut all = Vec::new();
    let mut profitable = 0;
    for (at, procedure) in procedures.iter().enumerate() {
        let threshold = options.profitable.threshold(&procedure.dag, options.copies);
        let partitioned = options.profitable.has_few_callers(procedure) && !are_too_many_tasks(&procedure.dag, threshold);
        let sets = if partitioned { tasks(&procedure.dag, threshold, options.fold_again) } else { Vec::new() };
        if sets.len() < 2 {
            all.push(task_of_all_paths(at, procedure));
            continue;
        }
        profitable += 1;
        all.extend(sets.into_iter().map(|edges| {
            let cost = count_probes_without_frequencies(procedure, |f| Some(Part::selective(&procedure.dag, &edges, f, Measure::Labels)));
            PathTask { procedure: at, edges: Some(edges), cost }
        }));
    }
    PartitionPlan { copies: distribute_tasks_greedily(procedures, all, options), profitable }
}

fn part_of_all_paths(procedure: &Procedure, measure: Measure) -> Option<Part> {
    Part::whole(&procedure.dag, &procedure.frequencies, measure)
}

fn task_of_all_paths(at: usize, procedure: &Procedure) -> PathTask {
    let cost = count_probes_without_frequencies(procedure, |f| Part::whole(&procedure.dag, f, Measure::Labels));
    PathTask { procedure: at, edges: None, cost }
}

/// Returns the number of probes of a part whose labels are placed without knowledge of frequencies.
fn count_probes_without_frequencies(procedure: &Procedure, part: impl Fn(&[u64]) -> Option<Part>) -> usize {
    part(&vec![1; procedure.dag.edges().len()]).map_or(0, |p| p.labels())
}

/// Distributes tasks, the most expensive first, each to the copy with the least load. Tasks of one procedure in one copy become one part.
fn distribute_tasks_greedily(procedures: &[Procedure], mut all: Vec<PathTask>, options: &PartitionOptions) -> Vec<CopyPlan> {
    all.sort_by_key(|t| std::cmp::Reverse(t.cost));
    let mut loads = vec![0; options.copies.max(1)];
    let mut given: Vec<Vec<Option<DagEdgeSet>>> = vec![vec![None; procedures.len()]; loads.len()];
    for task in all {
        let copy = (0..loads.len()).min_by_key(|c| loads[*c]).unwrap_or(0);
        loads[copy] += task.cost;
        let edges = procedures[task.procedure].dag.edges().len();
        let known = given[copy][task.procedure].get_or_insert_with(|| DagEdgeSet::empty(edges));
        known.union_with(&task.edges.unwrap_or_else(|| DagEdgeSet::full(edges)));
    }
    let part = |(procedure, edges): (&Procedure, Option<DagEdgeSet>)| {
        let edges = edges?;
        match procedure.dag.edges_on_marked_paths(|e| edges.contains(e)).is_full() {
            true => part_of_all_paths(procedure, options.measure),
            false => Some(Part::selective(&procedure.dag, &edges, &procedure.frequencies, options.measure)),
        }
    };
    given.into_iter().map(|edges| CopyPlan { parts: procedures.iter().zip(edges).map(part).collect() }).collect()
}
