//! Compares lower bounds on the cost of plans with brute force, which tries every set of labelled edges, and every way to divide the paths
//! among copies.
//!
//! The oracle represents paths as sets of edges. A copy needs at least one label on an edge in which a path that it profiles differs from
//! another path of the same end.

use std::collections::HashMap;
use trodden_flow::dag::Entries;
use trodden_flow::part::{Measure, PathEnds};
use trodden_flow::{Dag, DagEdgeId};
use trodden_partition::lower_bound::bound;
use trodden_partition::separation_bound::min_label_executions_for_ends;
use trodden_partition::single_path_bound::min_label_executions_for_one_path;
use trodden_partition::{ExecutedPath, Procedure};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, graph};

const MAX_INNER_EDGES: usize = 11;

struct BoundedProcedure {
    procedure: Procedure,
    ends: PathEnds,
    /// For each path, the edges before its end, as a bit set of indices into `labels`, and the end.
    paths: Vec<(u32, DagEdgeId)>,
    /// Number of executions of each edge on which a label can distinguish paths.
    labels: Vec<u64>,
}

fn random_procedure(random: &mut Random, most_paths: usize) -> Option<BoundedProcedure> {
    let (nodes, edges) = random.pick(&[(5, 8), (6, 10), (7, 12)]);
    let dag = Dag::new(&graph(random, nodes, edges, CycleKind::None), &[], Entries::PerEdge);
    let ends = PathEnds::from_dag(&dag);
    let inner: Vec<DagEdgeId> = dag.edge_ids().filter(|e| !ends.is_after_path_end(dag.edge(*e).to)).collect();
    let found = all_paths(&dag, most_paths).filter(|p| p.len() > 1 && inner.len() <= MAX_INNER_EDGES)?;
    let place: HashMap<DagEdgeId, usize> = inner.iter().enumerate().map(|(at, e)| (*e, at)).collect();
    let (mut frequencies, mut executed, mut paths) = (vec![0; dag.edges().len()], Vec::new(), Vec::new());
    for path in &found {
        let count = random.pick(&[0, 1, 2, 3, 5, 8, 40]);
        path.iter().for_each(|e| frequencies[e.index()] += count);
        let end = *path.iter().find(|e| ends.edges().contains(e)).unwrap();
        executed.push(ExecutedPath { end, count, in_passing: false });
        paths.push((path.iter().filter_map(|e| place.get(e)).fold(0, |bits, at| bits | 1 << at), end));
    }
    let labels = inner.iter().map(|e| frequencies[e.index()]).collect();
    let procedure = Procedure { dag, frequencies, paths: executed, call_sites: None, unit: 0 };
    Some(BoundedProcedure { procedure, ends, paths, labels })
}

impl BoundedProcedure {
    /// Returns the minimum number of label executions that distinguish each interesting path from all other paths with the same end.
    fn min_label_executions(&self, interesting: impl Fn(usize) -> bool) -> u64 {
        let mut differences = Vec::new();
        for (at, (bits, end)) in self.paths.iter().enumerate().filter(|(at, _)| interesting(*at)) {
            let others = self.paths.iter().enumerate().filter(|(other, (_, e))| *other != at && e == end);
            differences.extend(others.map(|(_, (other, _))| bits ^ other));
        }
        let executed = |set: u32| (0..self.labels.len()).filter(|at| set >> at & 1 == 1).map(|at| self.labels[at]).sum::<u64>();
        let sets = (0..1u32 << self.labels.len()).filter(|set| differences.iter().all(|d| d & set != 0));
        sets.map(executed).min().unwrap()
    }

    /// Returns the minimum number of probe executions in a copy that profiles the interesting paths.
    fn min_hits(&self, interesting: u32) -> u64 {
        let has = |at: usize| interesting >> at & 1 == 1;
        let counted = |e: &&DagEdgeId| self.paths.iter().enumerate().any(|(at, (_, end))| has(at) && end == *e);
        self.min_label_executions(has)
            + self.ends.edges().iter().filter(counted).map(|e| self.procedure.frequencies[e.index()]).sum::<u64>()
    }
}

#[test]
fn labels_that_distinguish_paths_cost_at_least_the_bound() {
    let (mut tight, mut all) = (0, 0);
    for seed in 0..6_000 {
        let Some(subject) = random_procedure(&mut Random::new(seed), 40) else { continue };
        let BoundedProcedure { procedure: Procedure { dag, frequencies, .. }, ends, paths, .. } = &subject;
        let mut sets = vec![ends.edges().to_vec()];
        sets.extend(ends.edges().iter().map(|e| vec![*e]));
        for interesting in sets {
            let found = min_label_executions_for_ends(dag, ends, frequencies, &interesting);
            let least = subject.min_label_executions(|at| interesting.contains(&paths[at].1));
            assert!(found <= least, "seed {seed} {interesting:?}: {found}, but {least} are enough");
            (tight, all) = (tight + u32::from(found == least), all + 1);
        }
    }
    assert!(all > 5_000 && tight * 100 > all * 95, "{tight} of {all} are exact");
}

#[test]
fn labels_that_distinguish_one_path_cost_at_least_the_bound() {
    let (mut tight, mut all) = (0, 0);
    for seed in 0..6_000 {
        let Some(subject) = random_procedure(&mut Random::new(seed), 40) else { continue };
        let BoundedProcedure { procedure: Procedure { dag, frequencies, .. }, ends, paths, .. } = &subject;
        for end in ends.edges() {
            let found = min_label_executions_for_one_path(dag, ends, frequencies, *end);
            let of_end = (0..paths.len()).filter(|at| paths[*at].1 == *end);
            let least = of_end.map(|at| subject.min_label_executions(|other| other == at)).max().unwrap_or(0);
            assert!(found <= least, "seed {seed} {end:?}: {found}, but {least} are enough");
            (tight, all) = (tight + u32::from(found == least), all + 1);
        }
    }
    assert!(all > 5_000 && tight * 100 > all * 95, "{tight} of {all} are exact");
}

#[test]
fn no_division_of_the_paths_is_below_the_bound() {
    let (mut tight, mut all) = (0, 0);
    for seed in 0..1_500 {
        let random = &mut Random::new(seed);
        let copies = random.pick(&[2, 3]);
        let Some(subject) = random_procedure(random, if copies == 2 { 7 } else { 5 }) else { continue };
        let count = subject.paths.len();
        let costs: Vec<u64> = (0..1u32 << count).map(|set| subject.min_hits(set)).collect();
        // Each path is assigned to exactly one copy, because assigning it to several would only cost more.
        let partition = |number: usize| {
            let mut sets = vec![0; copies];
            (0..count).fold(number, |rest, at| {
                sets[rest % copies] |= 1 << at;
                rest / copies
            });
            sets.iter().map(|set| costs[*set as usize]).max().unwrap()
        };
        let best = (0..copies.pow(count as u32)).map(&partition).min().unwrap();
        let bound = bound(std::slice::from_ref(&subject.procedure), copies, Measure::All);
        let found = bound.proven();
        assert!(found <= best, "seed {seed}: at least {found} for {copies} copies, but {best} are enough");
        let end_of = |at: usize| subject.paths[at].1;
        let leaves_ends_whole = |number: &usize| {
            let copy_of = |at: usize| number / copies.pow(at as u32) % copies;
            (0..count).all(|a| (0..a).all(|b| end_of(a) != end_of(b) || copy_of(a) == copy_of(b)))
        };
        let best_whole = (0..copies.pow(count as u32)).filter(leaves_ends_whole).map(partition).min().unwrap();
        assert!(bound.proven_for_whole_ends() <= best_whole, "seed {seed}: {bound:?} for {copies} copies, but {best_whole} are enough");
        (tight, all) = (tight + u32::from(found == best), all + 1);
    }
    assert!(all > 500 && tight * 3 > all, "{tight} of {all} are exact");
}
