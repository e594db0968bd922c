//! Residual plans compared with full plans: on random walks through random graphs, residual plans count every path except the known ones,
//! and known paths have little cost.

use crate::machine::random_block_properties;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::{Plan, RegisterAction};
use trodden_flow::program::CodeVersion;
use trodden_flow::program::machine::ProbeMachine;
use trodden_flow::program::{BlockProperties, DominantCounting, EarlyCounting, PassChoices, TripCounting};
use trodden_flow::residual::ResidualInput;
use trodden_flow::{Edge, EdgeSet, Graph, Node, NodeSet, ProbeProgram, ResidualPlan};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, forced_cuts, graph, plan_options};

use crate::machine;

type Counts = BTreeMap<u64, u64>;

/// Returns a random graph whose exit is its last node and has no out-edges.
fn random_graph_with_last_exit(random: &mut Random) -> Option<Graph> {
    let graph = graph(random, 10, 18, CycleKind::Some);
    (graph.out(graph.exit()).is_empty() && graph.exit().index() + 1 == graph.node_count()).then_some(graph)
}

/// Returns a walk from the entry to the exit that prefers certain edges.
fn random_walk(random: &mut Random, graph: &Graph, habits: &[u64]) -> Option<Vec<Edge>> {
    let (mut at, mut walk) = (graph.entry(), Vec::new());
    while at != graph.exit() {
        let out = graph.out(at);
        let liked: Vec<Edge> = out.iter().copied().filter(|e| habits[e.index()] > 0).collect();
        let edge = match liked.is_empty() || random.chance(5) {
            true => random.pick(if out.is_empty() { return None } else { out }),
            false => random.pick(&liked),
        };
        walk.push(edge);
        at = graph.to(edge);
        if walk.len() > 300 {
            return None;
        }
    }
    Some(walk)
}

/// Returns the counts of a full plan, and the number of its actions with an effect.
fn run_full_plan(graph: &Graph, plan: &Plan, walks: &[Vec<Edge>]) -> (Counts, u64) {
    let (mut counts, mut work) = (Counts::new(), 0);
    for walk in walks {
        let mut register = 0;
        for edge in walk {
            let action = plan.action(graph, *edge);
            work += u64::from(action != RegisterAction::Add { increment: 0 });
            match action {
                RegisterAction::Add { increment } => register += increment,
                RegisterAction::Count { increment } => *counts.entry((register + increment) as u64).or_default() += 1,
                RegisterAction::CountAndRestart { increment, start } => {
                    *counts.entry((register + increment) as u64).or_default() += 1;
                    register = start;
                }
                RegisterAction::Dead => panic!("no walk takes a dead edge"),
            }
        }
    }
    (counts, work)
}

/// Returns the edges that a walk takes in the graph of all versions.
fn edges_taken_in(versions: &ProbeProgram, walk: &[Edge]) -> Vec<Edge> {
    let mut at = versions.graph().entry();
    let taken = walk.iter().map(|edge| {
        let own = |e: &&Edge| versions.origin(**e) == *edge;
        let taken = *versions.graph().out(at).iter().find(own).expect("the version has such an edge");
        at = versions.graph().to(taken);
        taken
    });
    let taken = taken.collect();
    assert_eq!(at, versions.graph().exit());
    taken
}

/// Returns the counts of a residual plan, and the number of its operations with an effect.
fn run_residual_plan(versions: &ProbeProgram, known: &BTreeSet<u64>, walks: &[Vec<Edge>]) -> (Counts, u64) {
    let (mut work, places) = (0, versions.places().unwrap());
    let is_counted = |node: Node| places.get(node.index()).is_some_and(|p| p.version == CodeVersion::Instrumented);
    for edge in walks.iter().flat_map(|walk| edges_taken_in(versions, walk)) {
        let (from, to) = (versions.graph().from(edge), versions.graph().to(edge));
        work += u64::from(versions.has_code(edge)) + u64::from(!is_counted(from) && is_counted(to));
    }
    (count_with_program(versions, known, walks), work)
}

fn count_with_program(versions: &ProbeProgram, known: &BTreeSet<u64>, walks: &[Vec<Edge>]) -> Counts {
    let mut machine = ProbeMachine::with_known_paths(known.iter().map(|id| *id as i64));
    for walk in walks {
        machine.enter_function(versions);
        for edge in edges_taken_in(versions, walk) {
            machine.take_edge(versions, edge).expect("no fault");
        }
    }
    machine.counts.into_iter().map(|(id, count)| (id as u64, count)).collect()
}

fn count_taken_edges(versions: &ProbeProgram, walks: &[Vec<Edge>]) -> Vec<u64> {
    let mut taken = vec![0; versions.graph().edge_count()];
    walks.iter().flat_map(|walk| edges_taken_in(versions, walk)).for_each(|edge| taken[edge.index()] += 1);
    taken
}

/// Checks that every copy has an original, and that each version of a node exists once.
fn assert_versions_are_consistent(versions: &ProbeProgram, seed: u64) {
    let places = versions.places().unwrap();
    let originals: BTreeSet<Node> = places.iter().filter(|p| p.version == CodeVersion::Known(0)).map(|p| p.node).collect();
    let mut copies = places.iter().filter(|p| matches!(p.version, CodeVersion::Known(1..)));
    assert!(copies.all(|p| originals.contains(&p.node)), "seed {seed}: a copy has no original");
    assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len(), "seed {seed}: a version of a node exists twice");
}

#[test]
fn all_paths_except_known_ones_are_counted() {
    let (mut known_paths, mut unknown_paths, mut work_of_full, mut work_of_residual) = (0, 0, 0, 0);
    let (mut by_trip_count, mut in_register, mut copied) = (0, 0, 0u64);
    for seed in 0..120_000 {
        let mut random = Random::new(seed ^ 0x4e51_d0a1);
        let Some(graph) = random_graph_with_last_exit(&mut random) else { continue };
        let cuts = forced_cuts(&mut random, &graph);
        let frequencies = Frequencies::estimate(&graph, &vec![1.0; graph.edge_count()]);
        let plan = Plan::ball_larus(&graph, &cuts, &frequencies, &plan_options(&mut random));
        let habits: Vec<u64> = graph.edges().map(|_| random.below(3)).collect();
        let walks: Vec<Vec<Edge>> = (0..12).filter_map(|_| random_walk(&mut random, &graph, &habits)).collect();
        let tested = random.index(walks.len() + 1);
        let (known, work) = run_full_plan(&graph, &plan, &walks[..tested]);
        let (all, _) = run_full_plan(&graph, &plan, &walks);
        // With many executions, copies of code are profitable.
        let times = random.pick(&[1, 10_000]);
        let list: Vec<(u64, u64)> = known.iter().map(|(id, count)| (*id, times * *count)).collect();
        let excluded = EdgeSet::empty(graph.edge_count());
        let residual_paths =
            ResidualPlan::new(&plan.dag, &plan.numbering, ResidualInput { paths: &list, uncopied: &[], marks_call: &excluded });
        let probes = residual_paths.probes(&plan.dag, &plan.numbering, &graph, &frequencies);
        let plan = Plan { probes, ..plan };
        let versions = residual_paths.program_with_versions(&graph, &plan);
        let ids: BTreeSet<u64> = known.keys().copied().collect();
        let (found, _) = run_residual_plan(&versions, &ids, &walks);
        let expected: Counts = all.iter().filter(|(id, _)| !ids.contains(id)).map(|(id, n)| (*id, *n)).collect();
        assert_eq!(found, expected, "seed {seed}");
        let mut rewritten = versions.clone();
        let trip_counts = random.pick(&[TripCounting::Off, TripCounting::On]);
        let choices = PassChoices { trip_counts, early: EarlyCounting::IfNecessary, dominant: DominantCounting::Register };
        let often = machine::random_frequencies(&mut random, &graph);
        rewritten.run_passes(&often, &random_block_properties(&mut random, versions.graph()), choices);
        assert_eq!(count_with_program(&rewritten, &ids, &walks), expected, "seed {seed}: {rewritten:?}");
        by_trip_count += rewritten.loops().len();
        in_register += rewritten.dominant().iter().filter(|u| u.in_register.is_some()).count();
        let taken: Vec<u64> = count_taken_edges(&versions, &walks[..tested]).into_iter().map(|n| times * n).collect();
        let executions: Vec<u64> = versions.graph().edges().map(|e| versions.executions(e)).collect();
        assert_eq!(executions, taken, "seed {seed}");
        copied += u64::from(versions.places().unwrap().iter().any(|p| p.version == CodeVersion::Known(1)));
        assert_versions_are_consistent(&versions, seed);
        known_paths += known.len();
        unknown_paths += expected.len();
        work_of_full += work;
        work_of_residual += run_residual_plan(&versions, &ids, &walks[..tested]).1;
    }
    assert!(known_paths > 10_000 && unknown_paths > 10_000, "{known_paths} known, {unknown_paths} unknown paths");
    assert!(copied > 1000, "code was copied in {copied} graphs");
    assert!(by_trip_count > 500 && in_register > 1000, "{by_trip_count} loops by trip count, {in_register} iterations in a register");
    assert!(3 * work_of_residual < work_of_full, "known paths: work on {work_of_residual} edges, in the full plan on {work_of_full}");
}

/// A file may contain any paths as known, with any number of executions, even if no run executed them.
#[test]
fn any_set_of_paths_can_be_known() {
    let (mut left_out, mut copied) = (0, 0u64);
    for seed in 0..40_000 {
        let mut random = Random::new(seed ^ 0xa4_4b0e);
        let Some(graph) = random_graph_with_last_exit(&mut random) else { continue };
        let cuts = forced_cuts(&mut random, &graph);
        let frequencies = Frequencies::estimate(&graph, &vec![1.0; graph.edge_count()]);
        let plan = Plan::ball_larus(&graph, &cuts, &frequencies, &plan_options(&mut random));
        let habits: Vec<u64> = graph.edges().map(|_| random.below(3)).collect();
        let walks: Vec<Vec<Edge>> = (0..6).filter_map(|_| random_walk(&mut random, &graph, &habits)).collect();
        let paths = plan.numbering.paths();
        // Numbers from `paths` on belong to no path.
        let any: BTreeMap<u64, u64> =
            (0..random.below(12)).map(|_| (random.below(paths + 3), random.pick(&[0, 1, 100_000, u64::MAX]))).collect();
        let list: Vec<(u64, u64)> = any.into_iter().collect();
        let excluded = EdgeSet::from_fn(graph.edge_count(), |e| graph.to(e) == graph.exit() && random.below(4) == 0);
        let residual_paths =
            ResidualPlan::new(&plan.dag, &plan.numbering, ResidualInput { paths: &list, uncopied: &[], marks_call: &excluded });
        let probes = residual_paths.probes(&plan.dag, &plan.numbering, &graph, &frequencies);
        let plan = Plan { probes, ..plan };
        let versions = residual_paths.program_with_versions(&graph, &plan);
        let ids: BTreeSet<u64> = list.iter().map(|(id, _)| *id).collect();
        let (all, _) = run_full_plan(&graph, &plan, &walks);
        let expected: Counts = all.iter().filter(|(id, _)| !ids.contains(id)).map(|(id, n)| (*id, *n)).collect();
        assert_eq!(run_residual_plan(&versions, &ids, &walks).0, expected, "seed {seed}");
        left_out += all.len() - expected.len();
        copied += u64::from(versions.places().unwrap().iter().any(|p| p.version == CodeVersion::Known(1)));
    }
    assert!(left_out > 1000 && copied > 100, "{left_out} paths not counted, code copied in {copied} graphs");
}

/// Two diamonds in a row: 0 to 1 or 2, to 3, to 4 or 5, to 6.
fn two_diamonds() -> Graph {
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)];
    Graph::new(7, Node(0), Node(6), edges.iter().map(|(a, b)| (Node(*a), Node(*b))).collect()).unwrap()
}

#[test]
fn known_paths_are_separated_from_their_combinations_in_the_cheapest_way() {
    let graph = two_diamonds();
    let frequencies = Frequencies::estimate(&graph, &[1.0; 8]);
    let every = trodden_flow::PlanOptions { max_paths: 100, entries: trodden_flow::dag::Entries::Shared, chords: true, hot_first: false };
    let plan = Plan::ball_larus(&graph, &[], &frequencies, &every);
    let id = |edges: [u32; 4]| plan.numbering.id(&edges.map(|e| plan.dag.real(Edge(e)).unwrap()));
    let (one, other) = (id([0, 2, 4, 6]), id([1, 3, 5, 7]));
    let of = |counts: [u64; 2], single: &[Node]| {
        let mut known = vec![(one, counts[0]), (other, counts[1])];
        known.sort();
        let residual = ResidualPlan::new(
            &plan.dag,
            &plan.numbering,
            ResidualInput { paths: &known, uncopied: single, marks_call: &EdgeSet::empty(8) },
        );
        let transitions = || residual.region().states.iter().flat_map(|s| &s.transitions);
        let mut region: Vec<u32> = transitions().filter_map(|w| plan.dag.underlying_graph_edge(w.edge)).map(|e| e.0).collect();
        region.sort();
        (region, transitions().filter(|w| w.unclear).count(), residual.region().states.iter().filter(|s| s.node == Node(3)).count())
    };
    // The known edges can be combined to form two unknown paths, so the rare known path is left out.
    assert_eq!(of([1_000_000, 1], &[]), (vec![0, 2, 4, 6], 0, 1));
    // If both known paths are frequent, the node where they meet is copied.
    assert_eq!(of([1_000_000, 1_000_000], &[]), ((0..8).collect(), 0, 2));
    // If the node cannot be copied, or if the gain is small, a lookup at the end costs less than a detour.
    assert_eq!(of([1_000_000, 1_000_000], &[Node(3)]), ((0..8).collect(), 2, 1));
    assert_eq!(of([10, 10], &[]), ((0..8).collect(), 2, 1));
}

#[test]
fn a_path_that_reached_a_call_is_not_an_execution_of_the_edges_before() {
    // After node 1, the graph either ends with a mark that a call was reached, or continues with node 2.
    let edges = [(0, 1), (0, 3), (1, 4), (1, 2), (2, 4), (3, 4)];
    let graph = Graph::new(5, Node(0), Node(4), edges.iter().map(|(a, b)| (Node(*a), Node(*b))).collect()).unwrap();
    let frequencies = Frequencies::estimate(&graph, &[1.0; 6]);
    let every = trodden_flow::PlanOptions { max_paths: 100, entries: trodden_flow::dag::Entries::Shared, chords: true, hot_first: false };
    let plan = Plan::ball_larus(&graph, &[], &frequencies, &every);
    let id = |edges: &[u32]| plan.numbering.id(&edges.iter().map(|e| plan.dag.real(Edge(*e)).unwrap()).collect::<Vec<_>>());
    let known = [(id(&[0, 2]), 100), (id(&[0, 3, 4]), 100), (id(&[1, 5]), 60)];
    let excluded = EdgeSet::from_members(graph.edge_count(), [Edge(2)]);
    let of = ResidualInput { paths: &known, uncopied: &[], marks_call: &excluded };
    let versions = ResidualPlan::new(&plan.dag, &plan.numbering, of).program_with_versions(&graph, &plan);
    let taken: BTreeMap<u32, u64> = versions.graph().edges().map(|e| (versions.origin(e).0, versions.executions(e))).collect();
    assert_eq!(taken, BTreeMap::from([(0, 100), (1, 60), (2, 0), (3, 100), (4, 100), (5, 60)]));
}

/// Node 3 returns. Before it is reached from node 2, there is a tail call, which may never return.
#[test]
fn paths_are_looked_up_before_a_tail_call_that_ends_them() {
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)];
    let graph = Graph::new(5, Node(0), Node(4), edges.iter().map(|(a, b)| (Node(*a), Node(*b))).collect()).unwrap();
    let frequencies = Frequencies::estimate(&graph, &[1.0; 5]);
    let every = trodden_flow::PlanOptions { max_paths: 100, entries: trodden_flow::dag::Entries::Shared, chords: true, hot_first: false };
    let plan = Plan::ball_larus(&graph, &[], &frequencies, &every);
    let known = [(0, 1)];
    let of = ResidualInput { paths: &known, uncopied: &[], marks_call: &EdgeSet::empty(5) };
    let residual = ResidualPlan::new(&plan.dag, &plan.numbering, of);
    let blocks = |graph: &Graph, early: &dyn Fn(Node) -> bool| BlockProperties {
        quiet: NodeSet::full(graph.node_count()),
        must_count_early: NodeSet::from_fn(graph.node_count(), early),
        can_carry_code: EdgeSet::full(graph.edge_count()),
        carries_code_for_free: EdgeSet::full(graph.edge_count()),
        sizes: vec![1; graph.node_count()],
        changes_version: BTreeSet::new(),
        trip_counts: BTreeMap::new(),
        counted: BTreeSet::new(),
    };
    let choices = PassChoices { trip_counts: TripCounting::Tight, early: EarlyCounting::IfNecessary, dominant: DominantCounting::Split };
    let mut versions = residual.program_with_versions(&graph, &plan);
    let places = versions.places().unwrap().to_vec();
    let is_return = |n: Node| places.get(n.index()).is_some_and(|p| p.node == Node(3));
    let properties = blocks(versions.graph(), &is_return);
    let returns: Vec<Edge> = versions.graph().edges().filter(|e| is_return(versions.graph().from(*e))).collect();
    versions.run_passes(&frequencies, &properties, choices);
    let mut one = residual.program_with_lookups(&graph, &plan);
    one.run_passes(&frequencies, &blocks(&graph, &|n| n == Node(3)), PassChoices::COUNTING_AT_PATH_ENDS);
    assert!(returns.iter().all(|e| !versions.has_code(*e)) && !one.has_code(Edge(4)), "{versions:?} {one:?}");
    let walks = [vec![Edge(0), Edge(2), Edge(4)], vec![Edge(1), Edge(3), Edge(4)]];
    assert_eq!(count_with_program(&versions, &BTreeSet::from([0]), &walks), BTreeMap::from([(1, 1)]));
    let mut machine = ProbeMachine::with_known_paths([0]);
    for walk in &walks {
        machine.enter_function(&one);
        walk.iter().for_each(|e| machine.take_edge(&one, *e).expect("no fault"));
    }
    assert_eq!(machine.counts, BTreeMap::from([(1, 1)]));
}
