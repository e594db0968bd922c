//! Checks that a probe program counts the same as its plan, after all passes, on random walks through random graphs.

use crate::machine::random_block_properties;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::{Entries, Origin};
use trodden_flow::frequency::{Frequencies, innermost_loops};
use trodden_flow::part::{Measure, Part};
use trodden_flow::plan::{Plan, RegisterAction};
use trodden_flow::program::machine::ProbeMachine;
use trodden_flow::program::operation::{Operation, constant_register_value};
use trodden_flow::program::{BlockProperties, DominantCounting, DominantIterationCode, EarlyCounting, PassChoices, TripCounting};
use trodden_flow::verify::verify_part;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, EdgeSet, Graph, Node, NodeSet, Numbering, PlanOptions, ProbeProgram};
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, ProfitableProcedures};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, forced_cuts, graph, plan_options};

use crate::machine;

/// Executes the actions of a plan.
#[derive(Default)]
pub struct PlanMachine {
    /// The path register.
    pub register: i64,
    /// Counts by index.
    pub counts: BTreeMap<i64, u64>,
}

impl PlanMachine {
    /// Executes an action.
    pub fn apply(&mut self, action: RegisterAction) {
        match action {
            RegisterAction::Add { increment } => self.register += increment,
            RegisterAction::Count { increment } => *self.counts.entry(self.register + increment).or_default() += 1,
            RegisterAction::CountAndRestart { increment, start } => {
                *self.counts.entry(self.register + increment).or_default() += 1;
                self.register = start;
            }
            RegisterAction::Dead => panic!("a walk took a dead edge"),
        }
    }
}

fn random_walk(random: &mut Random, graph: &Graph) -> Option<Vec<Edge>> {
    let (mut at, mut walk) = (graph.entry(), Vec::new());
    while !graph.out(at).is_empty() {
        let edge = random.pick(graph.out(at));
        walk.push(edge);
        at = graph.to(edge);
        if at == graph.exit() {
            return Some(walk);
        }
        if walk.len() > 200 {
            return None;
        }
    }
    None
}

/// Returns the number of loops counted by trip count, for a loop of a head and a latch that is expected to iterate often.
fn trip_counted_loops(which: TripCounting, sizes: [u32; 2], crossed: BTreeSet<Edge>, times: Option<u64>) -> usize {
    trip_counted_loops_with_exits(which, sizes, crossed, times, &[(1, 3)], false)
}

/// Like [`trip_counted_loops`], but with the exit edges in `out`. If `counted` is true, the loop's own variable counts its iterations.
fn trip_counted_loops_with_exits(
    which: TripCounting,
    sizes: [u32; 2],
    crossed: BTreeSet<Edge>,
    times: Option<u64>,
    out: &[(u32, u32)],
    counted: bool,
) -> usize {
    let [entry, head, latch, exit] = [0, 1, 2, 3].map(Node);
    let mut edges = vec![(entry, head), (head, latch), (entry, exit), (latch, head)];
    edges.extend(out.iter().map(|(from, to)| (Node(*from), Node(*to))));
    let graph = Graph::new(4, entry, exit, edges).unwrap();
    let weights: Vec<f64> = graph.edges().map(|e| if e.index() == 1 || e.index() == 3 { 31.0 } else { 1.0 }).collect();
    let frequencies = Frequencies::estimate(&graph, &weights);
    let whole = PlanOptions { max_paths: 1 << 20, entries: Entries::Shared, chords: true, hot_first: false };
    let plan = Plan::ball_larus(&graph, &[], &frequencies, &whole);
    let properties = BlockProperties {
        quiet: NodeSet::full(4),
        must_count_early: NodeSet::empty(4),
        can_carry_code: EdgeSet::full(graph.edge_count()),
        carries_code_for_free: EdgeSet::full(graph.edge_count()),
        sizes: vec![50, sizes[0], sizes[1], 50],
        changes_version: crossed,
        trip_counts: times.map(|times| (Edge(3), times)).into_iter().collect(),
        counted: counted.then_some(Edge(3)).into_iter().collect(),
    };
    ProbeProgram::from_graph(
        &graph,
        &plan,
        &frequencies,
        &properties,
        PassChoices { trip_counts: which, early: EarlyCounting::IfProfitable, dominant: DominantCounting::Shared },
    )
    .loops()
    .len()
}

#[test]
fn tight_loops_are_counted_by_trip_count_and_longer_ones_on_request() {
    assert_eq!(trip_counted_loops(TripCounting::Tight, [4, 2], BTreeSet::new(), None), 1);
    assert_eq!(trip_counted_loops(TripCounting::Tight, [4, 3], BTreeSet::new(), None), 0);
    assert_eq!(trip_counted_loops(TripCounting::On, [4, 3], BTreeSet::new(), None), 1);
    assert_eq!(trip_counted_loops(TripCounting::Off, [1, 1], BTreeSet::new(), None), 0);
}

#[test]
fn loops_that_may_change_version_are_not_counted_by_trip_count() {
    assert_eq!(trip_counted_loops(TripCounting::Tight, [4, 2], BTreeSet::from([Edge(3)]), None), 0);
    assert_eq!(trip_counted_loops(TripCounting::Tight, [4, 2], BTreeSet::from([Edge(1)]), None), 1);
}

#[test]
fn loops_of_any_size_with_a_constant_trip_count_are_counted_by_it() {
    let counted = |crossed, times| trip_counted_loops(TripCounting::Tight, [40, 30], crossed, times);
    assert_eq!(counted(BTreeSet::new(), Some(3)), 1);
    assert_eq!(counted(BTreeSet::new(), Some(1)), 1);
    assert_eq!(counted(BTreeSet::new(), Some(0)), 0, "the back edge is never taken");
    assert_eq!(counted(BTreeSet::new(), None), 0);
    assert_eq!(counted(BTreeSet::from([Edge(3)]), Some(3)), 0);
}

#[test]
fn loops_counted_by_the_program_are_counted_by_trip_count_if_they_have_one_exit_edge() {
    let loops =
        |out: &[(u32, u32)], counted| trip_counted_loops_with_exits(TripCounting::Tight, [40, 30], BTreeSet::new(), None, out, counted);
    assert_eq!(loops(&[(1, 3)], true), 1);
    assert_eq!(loops(&[(1, 3)], false), 0);
    assert_eq!(loops(&[(1, 3), (2, 3)], true), 0);
}

/// Returns true if the register of a dominant iteration is written where control enters an inner loop that can return to the back edge.
fn is_written_before_inner_loop(graph: &Graph, dominant: &DominantIterationCode) -> bool {
    let Some(in_register) = &dominant.in_register else { return false };
    let innermost = innermost_loops(graph);
    let comes_back = |from: Node| {
        let (mut seen, mut stack) = (BTreeSet::from([in_register.head]), vec![from]);
        while let Some(node) = stack.pop() {
            if seen.insert(node) {
                stack.extend(graph.out(node).iter().map(|e| graph.to(*e)));
            }
        }
        seen.contains(&graph.from(dominant.back))
    };
    in_register
        .writes
        .iter()
        .map(|e| graph.to(*e))
        .any(|n| innermost[n.index()].is_some_and(|head| head != in_register.head) && comes_back(n))
}

#[test]
fn programs_count_what_plans_count() {
    let (mut by_trip_count, mut early, mut in_register, mut many) = (0, 0, 0, 0);
    let mut around_loops = 0;
    for seed in 0..200_000 {
        let mut random = Random::new(seed ^ 0x5c_4ed1);
        let graph = graph(&mut random, 9, 16, CycleKind::Some);
        if !graph.out(graph.exit()).is_empty() {
            continue;
        }
        let cuts = forced_cuts(&mut random, &graph);
        let frequencies = machine::random_frequencies(&mut random, &graph);
        let plan = Plan::ball_larus(&graph, &cuts, &frequencies, &plan_options(&mut random));
        let properties = random_block_properties(&mut random, &graph);
        let choices = PassChoices {
            trip_counts: random.pick(&[TripCounting::Off, TripCounting::Tight, TripCounting::On, TripCounting::On]),
            early: if random.chance(80) { EarlyCounting::IfProfitable } else { EarlyCounting::IfNecessary },
            dominant: random.pick(&[
                DominantCounting::Shared,
                DominantCounting::Split,
                DominantCounting::Register,
                DominantCounting::Register,
            ]),
        };
        let program = ProbeProgram::from_graph(&graph, &plan, &frequencies, &properties, choices);
        let is_flush = |o: &Operation| matches!(o, Operation::Flush { .. } | Operation::FlushDominant(_));
        for edge in graph.edges() {
            let moved = program.operations(edge).iter().any(is_flush) || program.counts_before_path_end(edge);
            assert!(!moved || properties.can_carry_code.contains(edge), "seed {seed}: {edge:?} cannot carry code");
        }
        by_trip_count += program.loops().len();
        in_register += program.dominant().iter().filter(|u| u.in_register.is_some()).count();
        around_loops += program.dominant().iter().filter(|u| is_written_before_inner_loop(&graph, u)).count();
        early += graph.edges().filter(|e| program.counts_before_path_end(*e)).count();
        for _ in 0..8 {
            let Some(walk) = random_walk(&mut random, &graph) else { continue };
            let (mut planned, mut scheduled) = (PlanMachine::default(), ProbeMachine::default());
            for edge in walk {
                planned.apply(plan.action(&graph, edge));
                scheduled.take_edge(&program, edge).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            }
            many += planned.counts.values().filter(|c| **c > 1).count();
            assert_eq!(scheduled.counts, planned.counts, "seed {seed}: {program:?}");
        }
    }
    assert!(
        by_trip_count > 1_000 && early > 1_000 && in_register > 1_000 && many > 1_000 && around_loops > 100,
        "{by_trip_count} loops by trip count, {in_register} in registers, {around_loops} around others, {early} early, {many} above 1"
    );
}

/// Returns the nodes of a path after the cut edge where the path begins, and the path's probability from there.
fn nodes_and_probability(graph: &Graph, plan: &Plan, frequencies: &Frequencies, path: &[DagEdgeId]) -> (Vec<Node>, f64) {
    let enters = |id: &&DagEdgeId| matches!(plan.dag.edge(**id).origin, Origin::Enter(_));
    let nodes: Vec<Node> = path.iter().filter(|id| !enters(id)).map(|id| plan.dag.edge(*id).from).collect();
    let real = path.iter().filter_map(|id| match plan.dag.edge(*id).origin {
        Origin::Real(edge) => Some(edge),
        _ => None,
    });
    (nodes, real.map(|e| frequencies.edge(e) / frequencies.node(graph.from(e)).max(f64::MIN_POSITIVE)).product())
}

#[test]
fn dominant_iterations_are_the_most_frequent_of_their_loops() {
    const MAX_SIZE: u32 = 24;
    let (mut found, mut several) = (0, 0);
    for seed in 0..30_000 {
        let mut random = Random::new(seed ^ 0x05_0a1);
        let graph = graph(&mut random, 7, 12, CycleKind::Some);
        if !graph.out(graph.exit()).is_empty() {
            continue;
        }
        let weights: Vec<f64> = graph.edges().map(|_| random.below(40) as f64).collect();
        let frequencies = Frequencies::estimate(&graph, &weights);
        let plan = Plan::ball_larus(&graph, &[], &frequencies, &plan_options(&mut random));
        let properties = random_block_properties(&mut random, &graph);
        let choices = PassChoices { dominant: DominantCounting::Split, ..PassChoices::COUNTING_AT_PATH_ENDS };
        let program = ProbeProgram::from_graph(&graph, &plan, &frequencies, &properties, choices);
        let innermost = innermost_loops(&graph);
        let fits = |head: Node, nodes: &[Node]| {
            nodes.iter().all(|n| properties.quiet.contains(*n) && innermost[n.index()] == Some(head))
                && nodes.iter().map(|n| properties.sizes[n.index()]).sum::<u32>() <= MAX_SIZE
        };
        for cut in plan.dag.cuts().iter().filter(|c| c.reason == CutReason::Back) {
            let Some(dominant) = program.dominant().iter().find(|u| u.back == cut.edge).map(|u| u.index) else { continue };
            let head = graph.to(cut.edge);
            let path = plan.numbering.path(&plan.dag, dominant as u64).expect("it is the number of a path");
            let begins = |p: &[DagEdgeId]| nodes_and_probability(&graph, &plan, &frequencies, p).0[0] == head;
            let is_iteration = |p: &[DagEdgeId]| p.last() == cut.leave.as_ref() && cut.enter.is_none_or(|id| p[0] == id) && begins(p);
            assert!(is_iteration(&path), "seed {seed}");
            let (nodes, probability) = nodes_and_probability(&graph, &plan, &frequencies, &path);
            assert!(fits(head, &nodes), "seed {seed}: {nodes:?}");
            let all = (0..plan.numbering.paths()).filter_map(|id| plan.numbering.path(&plan.dag, id));
            let iterations: Vec<_> = all.filter(|p| is_iteration(p)).collect();
            for other in
                iterations.iter().map(|p| nodes_and_probability(&graph, &plan, &frequencies, p)).filter(|(nodes, _)| fits(head, nodes))
            {
                assert!(other.1 <= probability * (1.0 + 1e-9), "seed {seed}: {other:?} is likelier than {nodes:?}");
            }
            found += 1;
            several += usize::from(iterations.len() > 1);
        }
    }
    assert!(found > 1_000 && several > 100, "{found} loops, {several} of several paths");
}

/// Random walks. Control may return a second time after an edge to a call that returns twice, without taking the edge again.
struct Walks(Vec<(Option<Edge>, Vec<Edge>)>);

impl Walks {
    fn new(random: &mut Random, graph: &Graph, twice: &[Edge]) -> Option<Walks> {
        let first = random_walk(random, graph)?;
        let mut walks = vec![(None, first)];
        let passed = walks[0].1.iter().position(|e| twice.contains(e));
        for at in passed.into_iter().filter(|_| random.chance(70)) {
            let (again, rest) = (walks[0].1[at], walks[0].1[at + 1..].to_vec());
            walks.push((Some(again), rest));
        }
        Some(Walks(walks))
    }

    fn count_by_plan(&self, graph: &Graph, plan: &Plan) -> BTreeMap<i64, u64> {
        let mut machine = PlanMachine::default();
        let start = |edge| match plan.action(graph, edge) {
            RegisterAction::CountAndRestart { start, .. } => start,
            other => panic!("{other:?}"),
        };
        for (again, walk) in &self.0 {
            machine.register = again.map_or(0, start);
            walk.iter().for_each(|e| machine.apply(plan.action(graph, *e)));
        }
        machine.counts
    }

    fn count_by_program(&self, program: &ProbeProgram) -> BTreeMap<i64, u64> {
        let mut machine = ProbeMachine::default();
        for (again, walk) in &self.0 {
            machine.register = Some(again.map_or(0, |e| constant_register_value(program.operations(e)).expect("a path begins there")));
            walk.iter().for_each(|e| machine.take_edge(program, *e).expect("no fault"));
        }
        machine.counts
    }
}

/// Returns random cuts of a graph. Some of the cut edges are their head's only in-edge, like edges to calls that return twice.
fn random_cuts(random: &mut Random, graph: &Graph) -> Vec<(Edge, CutReason)> {
    let alone = |e: Edge| graph.incoming(graph.to(e)).len() == 1 && graph.to(e) != graph.entry();
    let mut cuts = forced_cuts(random, graph);
    let twice = graph.edges().filter(|e| alone(*e) && graph.to(*e) != graph.exit() && random.chance(15));
    let twice: Vec<Edge> = twice.collect();
    cuts.retain(|(e, _)| !twice.contains(e));
    cuts.extend(twice.into_iter().map(|e| (e, CutReason::ReturnsTwice)));
    cuts.sort_by_key(|(e, _)| *e);
    cuts
}

fn partition_options(random: &mut Random) -> PartitionOptions {
    let copies = random.pick(&[1, 2, 3, 5]);
    let (fold_again, measure) = (random.chance(50), random.pick(&[Measure::All, Measure::Labels]));
    PartitionOptions { copies, profitable: ProfitableProcedures::ALL, fold_again, measure }
}

#[test]
fn counts_of_copies_sum_to_the_counts_of_all_paths() {
    let (mut compared, mut parts, mut beginnings, mut returns, mut by_trip_count) = (0, 0, 0, 0, [0, 0]);
    for seed in 0..30_000 {
        let mut random = Random::new(seed ^ 0xc0_91e5);
        let graph = graph(&mut random, 9, 16, CycleKind::Some);
        if !graph.out(graph.exit()).is_empty() {
            continue;
        }
        let cuts = random_cuts(&mut random, &graph);
        let twice: Vec<Edge> = cuts.iter().filter(|(_, r)| *r == CutReason::ReturnsTwice).map(|(e, _)| *e).collect();
        let weights: Vec<f64> = graph.edges().map(|_| random.below(40) as f64).collect();
        let plan = Plan::ball_larus(&graph, &cuts, &Frequencies::estimate(&graph, &weights), &plan_options(&mut random));
        if plan.dag.edges().is_empty() || plan.numbering.paths() > 500 {
            continue;
        }
        let frequencies = plan.dag.edges().iter().map(|_| random.below(100)).collect();
        let procedure = Procedure { dag: plan.dag.clone(), frequencies, paths: Vec::new(), call_sites: None, unit: 0 };
        let strategy = random.pick(&[PartitionStrategy::Sbl, PartitionStrategy::Pbl, PartitionStrategy::P3, PartitionStrategy::Weighted]);
        let options = partition_options(&mut random);
        let split = trodden_partition::plan(&[procedure], strategy, &options);
        let Some(walks) = Walks::new(&mut random, &graph, &twice) else { continue };
        returns += walks.0.len() - 1;
        let truth = walks.count_by_plan(&graph, &plan);
        let mut known = BTreeMap::new();
        for part in split.copies.into_iter().filter_map(|mut c| c.parts.remove(0)) {
            assert_verifier_rejects_faulty_parts(seed, &mut random, &plan.dag, &part);
            let copy = Plan::from_part(plan.dag.clone(), part.clone()).expect("a part has a plan");
            let program = ProbeProgram::from_graph(
                &graph,
                &copy,
                &Frequencies::estimate(&graph, &weights),
                &random_block_properties(&mut random, &graph),
                PassChoices { trip_counts: TripCounting::On, early: EarlyCounting::Never, dominant: DominantCounting::Shared },
            );
            for counted_loop in program.loops() {
                let leave = plan.dag.cut(counted_loop.back).and_then(|cut| cut.leave).expect("a loop is closed by a cut edge");
                by_trip_count[usize::from(part.counted.contains(leave))] += 1;
            }
            beginnings += graph.edges().filter(|e| program.counts_before_path_end(*e) && plan.dag.cut(*e).is_some()).count();
            let counts = walks.count_by_program(&program);
            parts += 1;
            assert_copy_counts_its_paths(seed, &plan.dag, &plan.numbering, &copy, &counts, &truth, &mut known);
        }
        compared += known.len();
        assert_eq!(known, truth, "seed {seed} {strategy:?}");
    }
    assert!(compared > 5_000 && parts > 5_000 && beginnings > 200 && returns > 30, "{compared} {parts} {beginnings} {returns}");
    // In some loops, the path is counted before the back edge; in others, it is counted on the back edge.
    assert!(by_trip_count[0] > 0 && by_trip_count[1] > 50, "{by_trip_count:?}");
}

/// Checks that the verifier accepts a part, and rejects it if a count is off by one or missing, or if all paths have the same number.
fn assert_verifier_rejects_faulty_parts(seed: u64, random: &mut Random, dag: &Dag, part: &Part) {
    assert_eq!(verify_part(dag, part), Ok(()), "seed {seed}");
    let counted: Vec<DagEdgeId> = part.counted.iter().filter(|e| part.interesting.contains(*e)).collect();
    let at = random.pick(&counted);
    let mut shifted = part.clone();
    shifted.increments[at.index()] += 1;
    let mut silent = part.clone();
    silent.counted.remove(at);
    for wrong in [shifted, silent] {
        assert!(verify_part(dag, &wrong).is_err(), "seed {seed}: edge {}", at.0);
    }
    let region = |e: &DagEdgeId| part.interesting.contains(*e);
    if dag.order().iter().any(|n| dag.out(*n).iter().copied().filter(region).count() > 1) {
        let none = vec![0; part.values.len()];
        let alike = Part { values: none.clone(), increments: none, offset: 0, ..part.clone() };
        assert!(verify_part(dag, &alike).is_err(), "seed {seed}: all numbers alike");
    }
}

/// Checks that a copy's counters are right for its paths, and that no other counter is written.
fn assert_copy_counts_its_paths(
    seed: u64,
    dag: &Dag,
    all: &Numbering,
    copy: &Plan,
    counts: &BTreeMap<i64, u64>,
    truth: &BTreeMap<i64, u64>,
    known: &mut BTreeMap<i64, u64>,
) {
    let part = copy.part.as_ref().unwrap();
    assert!(counts.keys().all(|word| (0..part.words as i64).contains(word)), "seed {seed}: {counts:?} of {} words", part.words);
    for id in 0..all.paths() {
        let path = all.path(dag, id).unwrap();
        if part.part.is_interesting(&path) {
            let word = path.iter().map(|e| part.part.values[e.index()]).sum::<i64>();
            let count = counts.get(&word).copied();
            assert_eq!(count, truth.get(&(id as i64)).copied(), "seed {seed}: path {id} in word {word}");
            count.into_iter().for_each(|count| _ = known.insert(id as i64, count));
        }
    }
}
