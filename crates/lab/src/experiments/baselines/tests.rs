//! Plans that leave paths out, and paths by loop level, against walks of random graphs that are logged edge by edge.
//!
//! What a walk should have counted is found by looking its edges up among those of the paths that are counted;
//! registers and increments have no part in that.

use super::cold::{Left, leave_out};
use super::{Baseline, RegisterStep, is_obvious, practical, structural, targeted};
use std::collections::BTreeMap;
use trodden_flow::dag::Entries;
use trodden_flow::frequency::{Frequencies, Hint, branch_weights};
use trodden_flow::plan::{PlanOptions, RegisterAction};
use trodden_flow::{Dag, DagEdgeId, Edge, Graph, Node, Origin};
use trodden_testkit::Random;
use trodden_testkit::graphs::{Cycles, forced, graph, options};

impl Baseline {
    /// Returns true if paths are left out.
    fn is_partial(&self) -> bool {
        self.left_out.is_some()
    }

    /// Numbers after those of the paths, by which executions of other paths are counted.
    fn overflow(&self) -> u64 {
        self.left_out.as_ref().map_or(0, |left| left.overflow)
    }
}

const GRAPHS: u64 = 20_000;

/// A walked path: where it begins behind a cut edge, its edges, how it ends.
type Walked = (Option<Node>, Vec<Edge>, End);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Exit,
    Cut(Edge),
}

/// Walks at random and counts by the plan's actions. Excluded edges are never taken.
fn walk(random: &mut Random, graph: &Graph, plan: &Baseline, excluded: &[bool], counts: &mut BTreeMap<i64, u64>, log: &mut Vec<Walked>) {
    let (mut at, mut register) = (graph.entry(), 0i64);
    let (mut begin, mut edges) = (None, Vec::new());
    for step in 0.. {
        // Given up in the middle of a path: nothing of that is counted.
        if step >= 60 && at != graph.exit() {
            return;
        }
        let out: Vec<Edge> = graph.out(at).iter().copied().filter(|e| !excluded[e.index()]).collect();
        if at == graph.exit() {
            return log.push((begin, edges, End::Exit));
        }
        if out.is_empty() {
            // A function's graph has no such blocks; here nothing is counted.
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
                log.push((begin, std::mem::take(&mut edges), End::Cut(edge)));
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

/// The path's edges in a DAG, if it has them all.
fn looked_up(dag: &Dag, (begin, edges, end): &Walked) -> Option<Vec<DagEdgeId>> {
    let find = |wanted: &dyn Fn(Origin, Node) -> bool| dag.edge_ids().find(|id| wanted(dag.edge(*id).origin, dag.edge(*id).to));
    let mut path = Vec::new();
    if let Some(head) = begin {
        path.push(find(&|origin, to| matches!(origin, Origin::Enter(_)) && to == *head)?);
    }
    for edge in edges {
        path.push(find(&|origin, _| origin == Origin::Real(*edge))?);
    }
    match end {
        End::Exit => {}
        End::Cut(edge) => path.push(find(&|origin, _| origin == Origin::Leave(*edge))?),
    }
    Some(path)
}

/// A graph whose exit nothing leaves, with frequencies.
fn subject(random: &mut Random) -> Option<(Graph, Frequencies)> {
    let graph = graph(random, 9, 20, Cycles::Some);
    if !graph.out(graph.exit()).is_empty() || !graph.incoming(graph.entry()).is_empty() {
        return None;
    }
    let hints: Vec<Hint> = graph.edges().map(|_| random.pick(&[Hint::None, Hint::Weight(7.0), Hint::Weight(0.1), Hint::Cold])).collect();
    let frequencies = Frequencies::estimate(&graph, &branch_weights(&graph, &hints));
    Some((graph, frequencies))
}

/// Paths are then known by where they begin.
fn shared_entries(random: &mut Random) -> PlanOptions {
    PlanOptions { entries: Entries::Shared, ..options(random) }
}

fn check(seed: u64, random: &mut Random, graph: &Graph, plan: &Baseline, excluded: &[bool]) {
    let (mut counts, mut log) = (BTreeMap::new(), Vec::new());
    for _ in 0..12 {
        walk(random, graph, plan, excluded, &mut counts, &mut log);
    }
    let (mut expected, mut lost) = (BTreeMap::<i64, u64>::new(), 0);
    for path in log {
        match looked_up(plan.numbered(), &path) {
            Some(path) => *expected.entry(plan.numbering.id(&path) as i64).or_default() += 1,
            None => lost += 1,
        }
    }
    // Walks that were given up have counted the paths that they completed, and those are in the log.
    let paths = plan.numbering.paths() as i64;
    let overflow = plan.overflow() as i64;
    let (reported, other): (BTreeMap<i64, u64>, BTreeMap<i64, u64>) = counts.into_iter().partition(|(id, _)| (0..paths).contains(id));
    assert_eq!(reported, expected, "seed {seed}");
    assert!(other.keys().all(|id| (paths..paths + overflow).contains(id)), "seed {seed}: {other:?} overflow {paths} + {overflow}");
    assert_eq!(other.values().sum::<u64>(), lost, "seed {seed}");
}

#[test]
fn paths_without_what_is_left_out_are_counted_exactly_and_the_others_behind_them() {
    let (mut partial, mut obvious) = (0, 0);
    for seed in 0..GRAPHS {
        let mut random = Random::new(seed ^ 0xc01d);
        let Some((graph, frequencies)) = subject(&mut random) else { continue };
        let cuts = forced(&mut random, &graph);
        let options = shared_entries(&mut random);
        let excluded: Vec<bool> = graph.edges().map(|e| graph.to(e) == graph.exit() && random.chance(10)).collect();
        let none = vec![false; graph.edge_count()];
        let plan = match random.below(3) {
            0 => targeted(&graph, &cuts, &frequencies, &excluded, &options),
            1 => practical(&graph, &cuts, &frequencies, &excluded, 50.0, &options),
            _ => {
                let cold = graph.edges().map(|_| random.chance(30)).collect();
                leave_out(&graph, &cuts, &frequencies, &Left { excluded: excluded.clone(), cold }, &options)
            }
        };
        partial += u64::from(plan.is_partial());
        obvious += u64::from(is_obvious(plan.numbered(), &plan.numbering));
        let excluded = if plan.is_partial() { &excluded } else { &none };
        check(seed, &mut random, &graph, &plan, excluded);
    }
    assert!(partial > GRAPHS / 10 && obvious > 0, "{partial} {obvious}");
}

#[test]
fn paths_by_loop_level_are_counted_exactly_and_cross_no_border() {
    for seed in 0..GRAPHS / 4 {
        let mut random = Random::new(seed ^ 0x1e7e1);
        let Some((graph, frequencies)) = subject(&mut random) else { continue };
        let plan = structural(&graph, &[], &frequencies, &shared_entries(&mut random));
        check(seed, &mut random, &graph, &plan, &vec![false; graph.edge_count()]);
    }
}
