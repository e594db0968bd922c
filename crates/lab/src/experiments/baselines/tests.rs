//! Compares partial and structural plans with random walks that are logged edge by edge.
//!
//! The expected counts are computed without registers or increments, by looking up the logged edges among the counted paths.

use super::cold::{OmittedEdges, omit_edges};
use super::{Baseline, RegisterStep, has_only_obvious_paths, plan_practical, plan_structural, plan_targeted};
use std::collections::BTreeMap;
use trodden_flow::dag::Entries;
use trodden_flow::frequency::{BranchHint, Frequencies, branch_weights};
use trodden_flow::plan::{PlanOptions, RegisterAction};
use trodden_flow::{Dag, DagEdgeId, Edge, EdgeSet, Graph, Node, Origin};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, forced_cuts, graph, plan_options};

impl Baseline {
    fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    fn overflow(&self) -> u64 {
        self.partial.as_ref().map_or(0, |partial| partial.overflow)
    }
}

const GRAPH_COUNT: u64 = 20_000;

/// A path of a random walk: the block where it starts after a cut edge (`None` at the entry), its edges, and how it ends.
type WalkedPath = (Option<Node>, Vec<Edge>, WalkEnd);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WalkEnd {
    Exit,
    Cut(Edge),
}

/// Walks at random through a graph, counts paths as the plan says, and logs them. Never takes excluded edges.
fn walk_at_random(
    random: &mut Random,
    graph: &Graph,
    plan: &Baseline,
    excluded: &EdgeSet,
    counts: &mut BTreeMap<i64, u64>,
    log: &mut Vec<WalkedPath>,
) {
    let (mut at, mut register) = (graph.entry(), 0i64);
    let (mut begin, mut edges) = (None, Vec::new());
    for step in 0.. {
        // A walk that is too long is abandoned, and its last path is not counted.
        if step >= 60 && at != graph.exit() {
            return;
        }
        let out: Vec<Edge> = graph.out(at).iter().copied().filter(|e| !excluded.contains(*e)).collect();
        if at == graph.exit() {
            return log.push((begin, edges, WalkEnd::Exit));
        }
        if out.is_empty() {
            // Graphs of real functions have no such blocks without out-edges.
            return;
        }
        let edge = random.pick(&out);
        let action = match plan.step(graph, edge) {
            RegisterStep::Plan(action) => action,
            RegisterStep::Poison(value) => {
                register = value;
                RegisterAction::Add { increment: 0 }
            }
        };
        match action {
            RegisterAction::Add { increment } => register += increment,
            RegisterAction::Count { increment } => *counts.entry(register + increment).or_default() += 1,
            RegisterAction::CountAndRestart { increment, start } => {
                *counts.entry(register + increment).or_default() += 1;
                register = start;
                log.push((begin, std::mem::take(&mut edges), WalkEnd::Cut(edge)));
                begin = (graph.to(edge) != graph.entry()).then_some(graph.to(edge));
            }
            RegisterAction::Dead => panic!("a walk took a dead edge"),
        }
        if plan.dag.cut(edge).is_none() {
            edges.push(edge);
        }
        at = graph.to(edge);
    }
}

/// Finds the edges of a walked path in an acyclic graph. Returns `None` if an edge is missing.
fn find_in_dag(dag: &Dag, (begin, edges, end): &WalkedPath) -> Option<Vec<DagEdgeId>> {
    let find = |wanted: &dyn Fn(Origin, Node) -> bool| dag.edge_ids().find(|id| wanted(dag.edge(*id).origin, dag.edge(*id).to));
    let mut path = Vec::new();
    if let Some(head) = begin {
        path.push(find(&|origin, to| matches!(origin, Origin::Enter(_)) && to == *head)?);
    }
    for edge in edges {
        path.push(find(&|origin, _| origin == Origin::Real(*edge))?);
    }
    match end {
        WalkEnd::Exit => {}
        WalkEnd::Cut(edge) => path.push(find(&|origin, _| origin == Origin::Leave(*edge))?),
    }
    Some(path)
}

/// Returns a random graph with frequencies, or `None` if the graph has an edge out of the exit or into the entry.
fn random_graph(random: &mut Random) -> Option<(Graph, Frequencies)> {
    let graph = graph(random, 9, 20, CycleKind::Some);
    if !graph.out(graph.exit()).is_empty() || !graph.incoming(graph.entry()).is_empty() {
        return None;
    }
    let hints: Vec<BranchHint> = graph
        .edges()
        .map(|_| random.pick(&[BranchHint::None, BranchHint::Weight(7.0), BranchHint::Weight(0.1), BranchHint::Cold]))
        .collect();
    let frequencies = Frequencies::estimate(&graph, &branch_weights(&graph, &hints));
    Some((graph, frequencies))
}

/// Returns random options in which cut edges lead to shared entries, so that a path is identified by its edges and the block where it
/// starts.
fn random_options_with_shared_entries(random: &mut Random) -> PlanOptions {
    PlanOptions { entries: Entries::Shared, ..plan_options(random) }
}

fn check_counts(seed: u64, random: &mut Random, graph: &Graph, plan: &Baseline, excluded: &EdgeSet) {
    let (mut counts, mut log) = (BTreeMap::new(), Vec::new());
    for _ in 0..12 {
        walk_at_random(random, graph, plan, excluded, &mut counts, &mut log);
    }
    let (mut expected, mut omitted) = (BTreeMap::<i64, u64>::new(), 0);
    for path in log {
        match find_in_dag(plan.numbered_graph(), &path) {
            Some(path) => *expected.entry(plan.numbering.id(&path) as i64).or_default() += 1,
            None => omitted += 1,
        }
    }
    // Paths that were completed before a walk was abandoned have been counted and logged, too.
    let paths = plan.numbering.paths() as i64;
    let overflow = plan.overflow() as i64;
    let (reported, other): (BTreeMap<i64, u64>, BTreeMap<i64, u64>) = counts.into_iter().partition(|(id, _)| (0..paths).contains(id));
    assert_eq!(reported, expected, "seed {seed}");
    assert!(other.keys().all(|id| (paths..paths + overflow).contains(id)), "seed {seed}: {other:?} overflow {paths} + {overflow}");
    assert_eq!(other.values().sum::<u64>(), omitted, "seed {seed}");
}

#[test]
fn kept_paths_are_counted_exactly_and_omitted_ones_in_the_overflow() {
    let (mut partial, mut obvious) = (0, 0);
    for seed in 0..GRAPH_COUNT {
        let mut random = Random::new(seed ^ 0xc01d);
        let Some((graph, frequencies)) = random_graph(&mut random) else { continue };
        let cuts = forced_cuts(&mut random, &graph);
        let options = random_options_with_shared_entries(&mut random);
        let excluded = EdgeSet::from_fn(graph.edge_count(), |e| graph.to(e) == graph.exit() && random.chance(10));
        let none = EdgeSet::empty(graph.edge_count());
        let plan = match random.below(3) {
            0 => plan_targeted(&graph, &cuts, &frequencies, &excluded, &options),
            1 => plan_practical(&graph, &cuts, &frequencies, &excluded, 50.0, &options),
            _ => {
                let cold = EdgeSet::from_fn(graph.edge_count(), |_| random.chance(30));
                omit_edges(&graph, &cuts, &frequencies, &OmittedEdges { excluded: excluded.clone(), cold }, &options)
            }
        };
        partial += u64::from(plan.is_partial());
        obvious += u64::from(has_only_obvious_paths(plan.numbered_graph(), &plan.numbering));
        let excluded = if plan.is_partial() { &excluded } else { &none };
        check_counts(seed, &mut random, &graph, &plan, excluded);
    }
    assert!(partial > GRAPH_COUNT / 10 && obvious > 0, "{partial} {obvious}");
}

#[test]
fn structural_paths_are_counted_exactly() {
    for seed in 0..GRAPH_COUNT / 4 {
        let mut random = Random::new(seed ^ 0x1e7e1);
        let Some((graph, frequencies)) = random_graph(&mut random) else { continue };
        let plan = plan_structural(&graph, &[], &frequencies, &random_options_with_shared_entries(&mut random));
        check_counts(seed, &mut random, &graph, &plan, &EdgeSet::empty(graph.edge_count()));
    }
}
