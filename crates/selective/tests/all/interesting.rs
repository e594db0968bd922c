//! Plans of interesting paths: on random graphs every interesting path is counted by a separate counter, which under the exact schemes
//! counts no other path.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::interesting::UninterestingPathAliases;
use trodden_flow::interesting::{InterestingPathPlan, PathEndCounterMapping};
use trodden_flow::plan::RegisterAction;
use trodden_flow::{DagEdgeId, Edge, EdgeSet, Graph, Node, NumberingScheme, Plan};
use trodden_selective::NumberOptions;
use trodden_selective::NumberingError;
use trodden_selective::plan::{InterestingInput, InterestingPlanError, plan_interesting};
use trodden_selective::verify::VerifyBudget;
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, forced_cuts, graph};

const MAX_PATHS: usize = 300;

/// Returns a random graph with some excluded edges to the exit, and a scheme's plan for some of its paths.
fn random_plan(seed: u64, scheme: NumberingScheme) -> Option<(Graph, EdgeSet, Vec<u64>, InterestingPathPlan)> {
    let random = &mut Random::new(seed);
    let graph = graph(random, 12, 24, CycleKind::Some);
    // No edge may leave the exit of a function.
    if !graph.out(graph.exit()).is_empty() {
        return None;
    }
    let frequencies = Frequencies::estimate(&graph, &vec![1.0; graph.edge_count()]);
    let (dag, numbering) = Plan::cut_and_number(&graph, &forced_cuts(random, &graph), Entries::Shared).unwrap();
    let inner = |e: &Edge| graph.to(*e) == graph.exit() && graph.out(graph.from(*e)).len() > 1;
    let excluded = EdgeSet::from_fn(graph.edge_count(), |e| inner(&e) && random.chance(25));
    let share = random.pick(&[5, 30, 70, 100]);
    let ids: Vec<u64> = (0..numbering.paths().min(MAX_PATHS as u64)).filter(|_| random.chance(share)).collect();
    let input = InterestingInput { scheme, ids: &ids, marks_call: &excluded };
    match plan_interesting(&graph, (dag, numbering), &input, &frequencies, &NumberOptions::default(), &VerifyBudget::default()) {
        Ok(planned) => Some((graph, excluded, ids, planned)),
        Err(InterestingPlanError::Nothing | InterestingPlanError::TooWide { .. } | InterestingPlanError::TooLong { .. }) => None,
        Err(InterestingPlanError::Numbering(NumberingError::NothingInteresting)) => panic!("seed {seed}: {ids:?}"),
        Err(InterestingPlanError::Numbering(_)) => None,
        Err(InterestingPlanError::Wrong(what)) => panic!("seed {seed} {}: {what}", scheme.name()),
    }
}

fn register_after(planned: &InterestingPathPlan, path: &[DagEdgeId]) -> i64 {
    path.iter().fold(0i64, |sum, e| sum.wrapping_add(planned.plan.probes.increment(*e)))
}

#[test]
fn interesting_paths_have_separate_counters() {
    let mut endings = BTreeSet::new();
    for scheme in NumberingScheme::ALL {
        let mut plans = 0;
        for seed in 0..120 {
            let Some((_, excluded, ids, planned)) = random_plan(seed, scheme) else { continue };
            let Some(paths) = all_paths(&planned.dag, MAX_PATHS) else { continue };
            plans += 1;
            endings.insert((
                planned.ending.counter_count() > 2,
                std::mem::discriminant(&planned.ending)
                    == std::mem::discriminant(&PathEndCounterMapping::Direct { bias: 0, width: 0, checked: false }),
            ));
            let listed: BTreeMap<u64, u64> = planned.paths.iter().copied().collect();
            assert_eq!(listed.len(), planned.paths.len(), "seed {seed}: two paths have the same counter");
            let is_excluded =
                |p: &[DagEdgeId]| p.last().and_then(|e| planned.dag.underlying_graph_edge(*e)).is_some_and(|e| excluded.contains(e));
            let (mut reported, mut wrong) = (BTreeSet::new(), 0u128);
            for path in paths.iter().filter(|p| !is_excluded(p)) {
                let id = planned.numbering.id(path);
                match listed.get(&planned.ending.counter_of(register_after(&planned, path))) {
                    Some(named) if *named == id => drop(reported.insert(id)),
                    Some(_) => wrong += 1,
                    None => assert!(!ids.contains(&id), "seed {seed} {}: path {id} is counted", scheme.name()),
                }
            }
            assert_eq!(reported.len(), listed.len(), "seed {seed} {}", scheme.name());
            match scheme.is_exact() {
                true => assert_eq!(wrong, 0, "seed {seed} {}", scheme.name()),
                false => assert_eq!(planned.aliases, UninterestingPathAliases::Exact(wrong), "seed {seed} {}", scheme.name()),
            }
        }
        assert!(plans > 40, "{}: {plans}", scheme.name());
    }
    assert!(endings.len() > 2, "{endings:?}");
}

#[test]
fn walks_are_counted_as_the_full_plan_counts_them() {
    let mut counted = 0;
    for scheme in [NumberingScheme::Ppp, NumberingScheme::KnownTable, NumberingScheme::Pspp, NumberingScheme::Pertinent] {
        for seed in 0..100 {
            let Some((graph, excluded, _, planned)) = random_plan(seed, scheme) else { continue };
            let random = &mut Random::new(seed);
            let (mut words, mut paths) = (BTreeMap::new(), BTreeMap::new());
            for _ in 0..20 {
                let Some(walk) = random_walk(random, &graph, &excluded) else { continue };
                let mut register = 0i64;
                let mut path = Vec::new();
                for edge in walk {
                    let action = planned.plan.action(&graph, edge);
                    let mut count =
                        |increment: i64| *words.entry(planned.ending.counter_of(register.wrapping_add(increment))).or_insert(0u64) += 1;
                    match action {
                        RegisterAction::Add { increment } => register = register.wrapping_add(increment),
                        RegisterAction::Count { increment } => count(increment),
                        RegisterAction::CountAndRestart { increment, start } => {
                            count(increment);
                            register = start;
                        }
                        RegisterAction::Dead => panic!("no walk takes such an edge"),
                    }
                    extend_path(&planned, edge, &mut path, &mut paths);
                }
            }
            let expected: BTreeMap<u64, u64> = planned.paths.iter().filter_map(|(w, id)| Some((*w, *paths.get(id)?))).collect();
            let known: BTreeSet<u64> = planned.paths.iter().map(|(w, _)| *w).collect();
            let others: u64 = words.iter().filter(|(w, _)| !known.contains(w)).map(|(_, n)| n).sum();
            words.retain(|w, _| known.contains(w));
            assert_eq!(words, expected, "seed {seed} {}", scheme.name());
            assert_eq!(others + words.values().sum::<u64>(), paths.values().sum::<u64>());
            counted += words.len();
        }
    }
    assert!(counted > 300, "{counted}");
}

/// Adds an edge of the graph to the current path of the acyclic graph, and counts the path if it ends.
fn extend_path(planned: &InterestingPathPlan, edge: Edge, path: &mut Vec<DagEdgeId>, paths: &mut BTreeMap<u64, u64>) {
    let dag = &planned.dag;
    let mut end = |path: &mut Vec<DagEdgeId>| *paths.entry(planned.numbering.id(&std::mem::take(path))).or_default() += 1;
    match (dag.real(edge), dag.cut(edge)) {
        (Some(id), _) => {
            path.push(id);
            if dag.edge(id).to == dag.exit() {
                end(path);
            }
        }
        (None, Some(cut)) => {
            path.extend(cut.leave);
            end(path);
            path.extend(cut.enter);
        }
        (None, None) => panic!("no walk takes a dead edge"),
    }
}

fn random_walk(random: &mut Random, graph: &Graph, excluded: &EdgeSet) -> Option<Vec<Edge>> {
    let (mut at, mut walk): (Node, Vec<Edge>) = (graph.entry(), Vec::new());
    while at != graph.exit() {
        let out: Vec<Edge> = graph.out(at).iter().copied().filter(|e| !excluded.contains(*e)).collect();
        if out.is_empty() || walk.len() > 200 {
            return None;
        }
        walk.push(random.pick(&out));
        at = graph.to(walk[walk.len() - 1]);
    }
    Some(walk)
}
