//! Compares partitions with brute force: all paths of random DAGs are enumerated, and random executions are interpreted copy by copy.
//!
//! The oracle represents paths as lists of edges, and counts them one by one. It has only the graph in common with the code under test.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use trodden_flow::dag::Entries;
use trodden_flow::part::precise_selective_labels;
use trodden_flow::part::{Measure, Part, PathEnds, ProbeHits};
use trodden_flow::{Dag, DagEdgeId, DagEdgeSet, Edge, Graph, Node};
use trodden_partition::lower_bound::bound;
use trodden_partition::tasks::tasks;
use trodden_partition::{
    CopyPlan, ExecutedPath, PartitionOptions, PartitionPlan, PartitionStrategy, Procedure, ProfitableProcedures, bounded, hits, plan,
};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, graph};

const MAX_PATHS: usize = 300;
const STRATEGIES: [PartitionStrategy; 4] =
    [PartitionStrategy::Sbl, PartitionStrategy::Pbl, PartitionStrategy::P3, PartitionStrategy::Weighted];

/// A procedure with the number of executions of each of its paths.
struct EnumeratedProcedure {
    procedure: Procedure,
    paths: Vec<(Vec<DagEdgeId>, u64)>,
}

fn random_procedure(random: &mut Random) -> Option<EnumeratedProcedure> {
    let cycles = random.pick(&[CycleKind::None, CycleKind::Some]);
    let (nodes, edges) = random.pick(&[(6, 10), (9, 20), (14, 26)]);
    let dag = Dag::new(&graph(random, nodes, edges, cycles), &[], Entries::PerEdge);
    if dag.edges().is_empty() {
        return None;
    }
    let ends: HashSet<DagEdgeId> = PathEnds::from_dag(&dag).edges().iter().copied().collect();
    let mut frequencies = vec![0; dag.edges().len()];
    let (mut executed, mut paths) = (Vec::new(), Vec::new());
    let dominant = random.chance(30);
    for (at, path) in all_paths(&dag, MAX_PATHS)?.into_iter().enumerate() {
        let count = match random.below(4) {
            0 => 0,
            _ if dominant && at == 0 => 5000,
            _ => random.below(100),
        };
        path.iter().for_each(|e| frequencies[e.index()] += count);
        let own: Vec<&DagEdgeId> = path.iter().filter(|e| ends.contains(e)).collect();
        assert_eq!(own.len(), 1, "each path takes one end");
        executed.push(ExecutedPath { end: *own[0], count, in_passing: false });
        paths.push((path, count));
    }
    let call_sites = Some(random.below(3) as u32);
    Some(EnumeratedProcedure {
        procedure: Procedure { dag, frequencies, paths: executed, call_sites, unit: random.below(3) as usize },
        paths,
    })
}

fn random_procedures(random: &mut Random) -> Vec<EnumeratedProcedure> {
    let count = random.pick(&[1, 1, 2, 4]);
    (0..count).filter_map(|_| random_procedure(random)).collect()
}

/// Executes a path in a copy. Returns the number of the path, and whether the copy counts it.
fn execute_path(part: &Part, path: &[DagEdgeId]) -> (i64, bool) {
    let sum = path.iter().map(|e| part.increments[e.index()]).sum::<i64>();
    let counted: Vec<&DagEdgeId> = path.iter().filter(|e| part.counted.contains(**e)).collect();
    assert!(counted.len() <= 1, "a path is counted once");
    (sum + part.offset, !counted.is_empty())
}

/// Computes the hits of a part by adding up the probes on each path, for each of its executions.
fn naive_hits(part: &Part, paths: &[(Vec<DagEdgeId>, u64)]) -> ProbeHits {
    let mut hits = ProbeHits::default();
    for (path, count) in paths {
        let labels = path.iter().filter(|e| part.increments[e.index()] != 0).count() as u64;
        let counts = path.iter().filter(|e| part.counted.contains(**e)).count() as u64;
        let in_count = path.iter().filter(|e| part.ends.contains(**e) && part.increments[e.index()] != 0).count() as u64;
        hits.labels += count * labels;
        hits.all += count * (labels - in_count + counts);
    }
    hits
}

fn check_plan(seed: u64, what: &str, subjects: &[EnumeratedProcedure], plan: &PartitionPlan) {
    for (at, subject) in subjects.iter().enumerate() {
        let dag = &subject.procedure.dag;
        let mut merged = vec![None; subject.paths.len()];
        for copy in &plan.copies {
            let Some(part) = &copy.parts[at] else { continue };
            assert_eq!(hits::part_hits(&subject.procedure, part), naive_hits(part, &subject.paths), "seed {seed} {what}: hits");
            let mut counters = BTreeMap::<i64, u64>::new();
            for (path, count) in &subject.paths {
                let (id, counted) = execute_path(part, path);
                if counted {
                    *counters.entry(id).or_default() += count;
                }
                if part.is_interesting(path) {
                    assert!(counted, "seed {seed} {what}: an interesting path is not counted");
                    assert_eq!(id, part.id(path), "seed {seed} {what}: the sum of increments is the number");
                }
            }
            for ((path, count), known) in subject.paths.iter().zip(&mut merged).filter(|((p, _), _)| part.is_interesting(p)) {
                let id = part.id(path);
                assert_eq!(part.path(dag, id).as_ref(), Some(path), "seed {seed} {what}: number {id} is another path's");
                assert_eq!(counters[&id], *count, "seed {seed} {what}: number {id} counts other paths as well");
                *known = Some(counters[&id]);
            }
        }
        let truth: Vec<Option<u64>> = subject.paths.iter().map(|(_, n)| Some(*n)).collect();
        assert_eq!(merged, truth, "seed {seed} {what}: a path is in no copy");
    }
}

/// Returns which procedures P3 divides, and into how many tasks: often the published values, otherwise random ones.
fn random_profitable_limits(random: &mut Random) -> ProfitableProcedures {
    let max_callers = random.pick(&[0, 1, 1, 2, u32::MAX]);
    ProfitableProcedures { max_callers, threshold: random.pick(&[None, None, Some(1), Some(3), Some(20)]) }
}

/// Plans with a maximum number of probes per copy count every path, and no copy exceeds the maximum. A maximum is rejected only if the
/// paths with a single end need more probes.
#[test]
fn copies_have_no_more_probes_than_the_bound() {
    let (mut rejected, mut several, mut split) = (0, 0, 0);
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let subjects = random_procedures(&mut random);
        let procedures: Vec<Procedure> = subjects.iter().map(|s| s.procedure.clone()).collect();
        let (most, measure) = (random.pick(&[1, 2, 4, 8, 16, 64]), random.pick(&[Measure::Labels, Measure::All]));
        match bounded::plan_with_max_probes(&procedures, most, measure) {
            Ok(plan) => {
                check_plan(seed, "bounded", &subjects, &plan);
                let probes = |copy: &CopyPlan| copy.parts.iter().flatten().map(Part::probes).sum::<usize>();
                assert!(plan.copies.iter().all(|copy| probes(copy) <= most), "seed {seed}");
                // After first fit, no two copies can be merged: if their pieces belong to different procedures, they have more probes
                // together than a copy may have.
                let is_apart = |a: &CopyPlan, b: &CopyPlan| a.parts.iter().zip(&b.parts).all(|(a, b)| a.is_none() || b.is_none());
                for (at, a) in plan.copies.iter().enumerate() {
                    let fits = |b: &&CopyPlan| is_apart(a, b) && probes(a) + probes(b) <= most && probes(a) > 0;
                    assert_eq!(plan.copies[at + 1..].iter().filter(fits).count(), 0, "seed {seed}");
                }
                several += usize::from(plan.copies.len() > 1);
                split += plan.profitable;
            }
            Err(few) => {
                let Procedure { dag, frequencies, .. } = &procedures[few.procedure];
                let alone = |end: &DagEdgeId| Part::counting_paths_with_ends(dag, &[*end], frequencies, measure).probes();
                assert!(PathEnds::from_dag(dag).edges().iter().any(|end| alone(end) == few.probes) && few.probes > most, "seed {seed}");
                rejected += 1;
            }
        }
    }
    assert!(rejected > 100 && several > 200 && split > 100, "{rejected} rejected, {several} in several copies, {split} split");
}

/// Procedures with up to the given number of call sites are divided, into about the given number of tasks.
#[test]
fn callers_and_threshold_determine_profitable_procedures() {
    let mut random = Random::new(5);
    let subject = (0..).find_map(|_| random_procedure(&mut random).filter(|s| tasks(&s.procedure.dag, 6, false).len() > 5)).unwrap();
    let procedure = |call_sites| Procedure { call_sites, ..subject.procedure.clone() };
    let procedures = [procedure(Some(0)), procedure(Some(1)), procedure(Some(2)), procedure(Some(3)), procedure(None)];
    let profitable = |profitable| {
        let options = PartitionOptions { profitable, ..PartitionOptions::new(2, Measure::Labels) };
        plan(&procedures, PartitionStrategy::P3, &options).profitable
    };
    for (max_callers, expected) in [(0, 1), (1, 2), (2, 3), (3, 4), (u32::MAX, 5)] {
        assert_eq!(profitable(ProfitableProcedures { max_callers, threshold: None }), expected, "{max_callers} callers");
    }
    // Tasks grow edge by edge: with the lowest threshold, there is a task for the entry's first edge, and one for all others.
    let dag = &subject.procedure.dag;
    let many = |threshold| tasks(dag, threshold, false).len();
    assert!(many(1) <= 2 && many(3) >= 3 && many(1) < many(6) && many(6) > 5, "{} {} {}", many(1), many(3), many(6));
    assert_eq!(ProfitableProcedures::default().threshold(&subject.procedure.dag, 1000), 1000);
    assert_eq!(ProfitableProcedures { threshold: Some(3), ..ProfitableProcedures::ALL }.threshold(&subject.procedure.dag, 1000), 3);
}

#[test]
fn every_plan_counts_every_path_exactly_and_has_the_computed_cost() {
    let (mut plans, mut divided, mut better) = (0, 0, 0);
    for seed in 0..4_000 {
        let mut random = Random::new(seed);
        let subjects = random_procedures(&mut random);
        let procedures: Vec<Procedure> = subjects.iter().map(|s| s.procedure.clone()).collect();
        let copies = random.pick(&[1, 2, 3, 4, 8]);
        let measure = random.pick(&[Measure::Labels, Measure::All]);
        let options =
            PartitionOptions { copies, profitable: random_profitable_limits(&mut random), fold_again: random.chance(50), measure };
        let bounds = [Measure::Labels, Measure::All].map(|m| (m, bound(&procedures, copies, m)));
        let mut slowest = BTreeMap::new();
        for strategy in STRATEGIES {
            let plan = plan(&procedures, strategy, &options);
            assert_eq!(plan.copies.len(), copies);
            check_plan(seed, &format!("{strategy:?}"), &subjects, &plan);
            for (measure, bound) in &bounds {
                let slowest = hits::slowest_copy_hits(&procedures, &plan, *measure);
                let least = if strategy == PartitionStrategy::P3 { bound.proven() } else { bound.proven_for_whole_ends() };
                assert!(slowest >= least, "seed {seed} {strategy:?} {measure:?}: {slowest} hits, at least {least}");
            }
            divided += usize::from(plan.profitable > 0);
            plans += 1;
            slowest.insert(format!("{strategy:?}"), hits::slowest_copy_hits(&procedures, &plan, measure));
        }
        better += usize::from(slowest["Weighted"] < slowest["P3"]);
        assert!(slowest["Weighted"] <= slowest["Sbl"], "seed {seed}: {slowest:?}");
    }
    assert!(plans > 10_000 && divided > 1_000 && better > 500, "{plans} plans, {divided} divided, {better} better");
}

#[test]
fn selective_labels_are_valid_for_any_set_of_edges() {
    let mut selective = 0;
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let Some(subject) = random_procedure(&mut random) else { continue };
        let dag = &subject.procedure.dag;
        let share = random.pick(&[30, 60, 80, 95]);
        let marked = DagEdgeSet::from_fn(dag.edges().len(), |_| random.chance(share));
        let interesting = dag.edges_on_marked_paths(|e| marked.contains(e));
        let values = precise_selective_labels(dag, &interesting);
        let id = |path: &[DagEdgeId]| path.iter().map(|e| values[e.index()]).sum::<i64>();
        let is_interesting = |path: &[DagEdgeId]| path.iter().all(|e| marked.contains(*e));
        let (region, outside): (Vec<_>, Vec<_>) = subject.paths.iter().map(|(p, _)| p).partition(|p| is_interesting(p));
        assert!(region.iter().all(|p| p.iter().all(|e| interesting.contains(*e))), "seed {seed}");
        let ids: HashSet<i64> = region.iter().map(|p| id(p)).collect();
        assert_eq!(ids.len(), region.len(), "seed {seed}: two interesting paths have the same number");
        assert!(outside.iter().all(|p| !ids.contains(&id(p))), "seed {seed}: an uninteresting path has an interesting number");
        assert!(
            dag.edge_ids().all(|e| interesting.contains(e) || values[e.index()] == 0),
            "seed {seed}: uninteresting edges have no label"
        );
        selective += usize::from(!region.is_empty() && !outside.is_empty());
        for measure in [Measure::Labels, Measure::All] {
            let part = Part::selective(dag, &marked, &subject.procedure.frequencies, measure);
            let ids: HashSet<i64> = region.iter().map(|p| execute_path(&part, p).0).collect();
            assert!(
                ids.len() == region.len() && outside.iter().all(|p| !ids.contains(&execute_path(&part, p).0)),
                "seed {seed}: on chords"
            );
        }
    }
    assert!(selective > 3_000, "{selective}");
}

#[test]
fn every_path_is_in_a_task() {
    let mut several = 0;
    for seed in 0..8_000 {
        let mut random = Random::new(seed);
        let Some(subject) = random_procedure(&mut random) else { continue };
        let dag = &subject.procedure.dag;
        for again in [false, true] {
            let sets = tasks(dag, ProfitableProcedures::ALL.threshold(dag, random.pick(&[1, 2, 4, 8])), again);
            several += usize::from(sets.len() > 1);
            for (path, _) in &subject.paths {
                assert!(sets.iter().any(|set| path.iter().all(|e| set.contains(*e))), "seed {seed}: {path:?} is in no task of {sets:?}");
            }
        }
    }
    assert!(several > 2_000, "{several}");
}

/// Node 1 branches to two rows of two diamonds each (nodes 2 to 8 and 9 to 15), which lead to the exit, node 16. This is a small version of
/// the paper's example.
fn two_rows_of_diamonds() -> Graph {
    let mut edges = vec![(0, 1), (1, 2), (1, 9), (8, 16), (15, 16)];
    for begin in [2, 5, 9, 12] {
        edges.extend([(begin, begin + 1), (begin, begin + 2), (begin + 1, begin + 3), (begin + 2, begin + 3)]);
    }
    Graph::new(17, Node(0), Node(16), edges.into_iter().map(|(a, b)| (Node(a), Node(b))).collect()).unwrap()
}

#[test]
fn sequences_of_diamonds_stay_in_one_task() {
    // The reduced graph has one path for each edge out of node 1.
    let dag = Dag::new(&two_rows_of_diamonds(), &[], Entries::PerEdge);
    assert_eq!(all_paths(&dag, MAX_PATHS).unwrap().len(), 8);
    let sets = tasks(&dag, ProfitableProcedures::ALL.threshold(&dag, 2), false);
    assert_eq!(sets.len(), 2);
    let first: Vec<bool> = sets.iter().map(|s| s.contains(dag.real(Edge(1)).unwrap())).collect();
    assert_ne!(first[0], first[1], "each edge has a task of its own");
    let shared: Vec<DagEdgeId> = sets[0].iter().filter(|e| sets[1].contains(*e)).collect();
    assert_eq!(shared, [DagEdgeId(0)], "the edge before both");
    // Labels of one task are executed by no path of the other.
    for set in &sets {
        let part = Part::selective(&dag, set, &vec![1; dag.edges().len()], Measure::Labels);
        let other = sets.iter().find(|s| *s != set).unwrap();
        let overlapping = other.iter().filter(|e| part.values[e.index()] != 0).count();
        assert_eq!(overlapping, 0);
    }
}

#[test]
fn a_path_of_most_hits_bounds_every_plan() {
    let graph = Graph::new(3, Node(0), Node(2), vec![(Node(0), Node(1)), (Node(0), Node(1)), (Node(1), Node(2))]).unwrap();
    let dag = Dag::new(&graph, &[], Entries::PerEdge);
    let path = |end, count| ExecutedPath { end: DagEdgeId(end), count, in_passing: false };
    let procedure =
        Procedure { dag, frequencies: vec![900, 100, 1000], paths: vec![path(0, 900), path(1, 100)], call_sites: Some(1), unit: 0 };
    let found = bound(std::slice::from_ref(&procedure), 8, Measure::All);
    assert_eq!((found.sequential, found.ideal, found.path, found.end, found.average), (1000, 125, 900, 900, 125));
    assert_eq!(found.proven(), 900);
    let options = PartitionOptions { copies: 8, profitable: ProfitableProcedures::default(), fold_again: false, measure: Measure::All };
    let plan = plan(std::slice::from_ref(&procedure), PartitionStrategy::Weighted, &options);
    assert_eq!(hits::slowest_copy_hits(&[procedure], &plan, Measure::All), 900);
}

/// There are four units of three functions. In each unit, one function is executed often, one rarely, and one never.
#[test]
fn rarely_executed_functions_stay_with_others_of_their_unit() {
    let graph = Graph::new(3, Node(0), Node(2), vec![(Node(0), Node(1)), (Node(0), Node(1)), (Node(1), Node(2))]).unwrap();
    let procedure = |unit: usize, executed: u64| Procedure {
        dag: Dag::new(&graph, &[], Entries::PerEdge),
        frequencies: vec![executed, executed, 2 * executed],
        paths: Vec::new(),
        call_sites: None,
        unit,
    };
    let procedures: Vec<Procedure> = [0, 1, 10_000]
        .iter()
        .flat_map(|n| (0..4).map(move |at| (if *n == 0 { 3 - at } else { at }, *n)))
        .map(|(u, n)| procedure(u, n))
        .collect();
    let options = PartitionOptions { copies: 4, profitable: ProfitableProcedures::default(), fold_again: false, measure: Measure::All };
    let plan = plan(&procedures, PartitionStrategy::Weighted, &options);
    let units = |copy: &CopyPlan| {
        procedures.iter().zip(&copy.parts).filter(|(_, part)| part.is_some()).map(|(p, _)| p.unit).collect::<BTreeSet<_>>()
    };
    assert!(plan.copies.iter().all(|copy| units(copy).len() == 1), "{:?}", plan.copies.iter().map(units).collect::<Vec<_>>());
    assert!(hits::slowest_copy_hits(&procedures, &plan, Measure::All) <= 20_002);
}

#[test]
fn rarely_executed_functions_of_few_units_go_to_copies_in_turn() {
    let graph = Graph::new(3, Node(0), Node(2), vec![(Node(0), Node(1)), (Node(0), Node(1)), (Node(1), Node(2))]).unwrap();
    let procedure = |executed: u64| Procedure {
        dag: Dag::new(&graph, &[], Entries::PerEdge),
        frequencies: vec![executed, executed, 2 * executed],
        paths: Vec::new(),
        call_sites: None,
        unit: 0,
    };
    // Rarely means never, or once according to an estimate.
    for seldom in [0, 1] {
        let procedures: Vec<Procedure> = [1_000_000; 4].into_iter().chain([seldom; 20]).map(procedure).collect();
        let options = PartitionOptions { copies: 4, profitable: ProfitableProcedures::default(), fold_again: false, measure: Measure::All };
        let plan = plan(&procedures, PartitionStrategy::Weighted, &options);
        let parts = |copy: &CopyPlan| copy.parts.iter().skip(4).filter(|part| part.is_some()).count();
        assert!(plan.copies.iter().all(|copy| (3..=7).contains(&parts(copy))), "{:?}", plan.copies.iter().map(parts).collect::<Vec<_>>());
    }
}
