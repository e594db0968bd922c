//! Ball-Larus numbering, chord placement, plans and cutting against brute force on random multigraphs.
//!
//! The oracle enumerates paths and logs walks edge by edge; it has only the graph in common with the code under test.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::frequency::{BranchHint, Frequencies, branch_weights};
use trodden_flow::plan::{PlanOptions, RegisterAction};
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Graph, Node, Numbering, Origin, Plan, Probes};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, forced_cuts, graph, plan_options};

const GRAPHS: u64 = 60_000;
const MAX_PATHS: u64 = 3_000;

fn random_graph(random: &mut Random) -> Graph {
    let cycles = if random.chance(40) { CycleKind::None } else { CycleKind::Some };
    graph(random, 9, 20, cycles)
}

#[test]
fn path_numbers_are_dense_invertible_and_kept_by_chord_placement() {
    let (mut enumerated, mut cyclic, mut cheaper) = (0, 0, 0);
    for seed in 0..GRAPHS {
        let mut random = Random::new(seed);
        let graph = random_graph(&mut random);
        let cuts = forced_cuts(&mut random, &graph);
        let dag = Dag::new(&graph, &cuts, random.pick(&[Entries::PerEdge, Entries::Shared]));
        assert_dag_invariants(seed, &graph, &dag);
        cyclic += u64::from(!dag.cuts().is_empty());
        let numbering = Numbering::ball_larus(&dag).unwrap();
        if numbering.paths() > MAX_PATHS {
            continue;
        }
        enumerated += 1;
        let weights: Vec<f64> = dag.edge_ids().map(|_| random.below(100) as f64).collect();
        let chords = Probes::on_chords(&dag, numbering.values(), &weights);
        let direct = Probes::direct(numbering.values());
        let paths = all_paths(&dag, usize::MAX).unwrap();
        let mut ids = BTreeSet::new();
        for path in &paths {
            let id = numbering.id(path);
            assert!(ids.insert(id), "seed {seed}: two paths have number {id}");
            assert_eq!(numbering.path(&dag, id).as_ref(), Some(path), "seed {seed}");
            for probes in [&chords, &direct] {
                let sum: i64 = path.iter().map(|e| probes.increment(*e)).sum();
                assert_eq!(sum as u64, id, "seed {seed}");
            }
        }
        assert_eq!(numbering.paths(), paths.len() as u64, "seed {seed}");
        assert!(ids.iter().copied().eq(0..paths.len() as u64), "seed {seed}: {ids:?}");
        assert_eq!(numbering.path(&dag, numbering.paths()), None);
        // A spanning tree has V - 1 edges, one of which is the edge from exit to entry.
        assert!(chords.count() <= dag.edges().len() + 2 - dag.order().len(), "seed {seed}");
        let cost = |probes: &Probes| dag.edge_ids().filter(|e| probes.increment(*e) != 0).map(|e| weights[e.index()]).sum::<f64>();
        assert!(cost(&chords) <= weights.iter().sum::<f64>() - max_spanning_tree_weight(&dag, &weights), "seed {seed}");
        cheaper += u64::from(cost(&chords) < cost(&direct));
        assert_eq!(Numbering::from_values(&dag, numbering.values()).as_ref(), Ok(&numbering));
    }
    assert!(enumerated >= 20_000 && cyclic >= 5_000 && cheaper >= 5_000, "{enumerated} enumerated, {cyclic} cyclic, {cheaper} cheaper");
}

/// Returns the weight of a maximum spanning tree (Prim's algorithm) that contains the edge from exit to entry, at no cost.
fn max_spanning_tree_weight(dag: &Dag, weights: &[f64]) -> f64 {
    let mut region = BTreeSet::from([dag.entry(), dag.exit()]);
    let mut total = 0.0;
    loop {
        let crossing = dag.edge_ids().filter(|e| region.contains(&dag.edge(*e).from) != region.contains(&dag.edge(*e).to));
        let Some(best) = crossing.max_by(|a, b| weights[a.index()].total_cmp(&weights[b.index()])) else { return total };
        total += weights[best.index()];
        region.extend([dag.edge(best).from, dag.edge(best).to]);
    }
}

fn assert_dag_invariants(seed: u64, graph: &Graph, dag: &Dag) {
    let place: BTreeMap<Node, usize> = dag.order().iter().enumerate().map(|(i, n)| (*n, i)).collect();
    assert!(dag.edges().iter().all(|e| place[&e.from] < place[&e.to]), "seed {seed}: not acyclic, or not reachable");
    assert!(dag.edges().iter().all(|e| e.to != dag.entry() && e.from != dag.exit()), "seed {seed}");
    assert!(dag.order().iter().all(|n| *n == dag.exit() || dag.edges().iter().any(|e| e.from == *n)), "seed {seed}: a dead end");
    // The nodes that are reachable over edges of the graph.
    let mut reached = BTreeSet::from([graph.entry()]);
    loop {
        let more: Vec<Node> =
            graph.edges().filter(|e| reached.contains(&graph.from(*e)) && !reached.contains(&graph.to(*e))).map(|e| graph.to(e)).collect();
        if more.is_empty() {
            break;
        }
        reached.extend(more);
    }
    for edge in graph.edges() {
        let live = reached.contains(&graph.from(edge));
        assert_eq!(dag.real(edge).is_some() || dag.cut(edge).is_some(), live, "seed {seed}: edge {edge:?}");
        assert!(dag.real(edge).is_none() || dag.cut(edge).is_none(), "seed {seed}: edge {edge:?} is both");
    }
    let again = Dag::from_edges(graph.node_count() as u32, graph.entry(), graph.exit(), dag.edges().to_vec());
    let again = again.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_eq!((again.edges(), again.order()), (dag.edges(), dag.order()), "seed {seed}");
    // The cut of an edge from exit to entry has no dummy edges, so it is not recovered.
    let traced = dag.cuts().iter().filter(|c| c.leave.is_some()).map(|c| c.edge);
    assert!(traced.eq(again.cuts().iter().filter(|c| c.leave.is_some()).map(|c| c.edge)), "seed {seed}");
}

/// The head of the cut edge where a path began (`None` at the entry), the path's edges, and the cut edge that ended the path.
type WalkedPath = (Option<Node>, Vec<Edge>, Option<Edge>);

fn to_walked_path(dag: &Dag, graph: &Graph, path: &[DagEdgeId]) -> WalkedPath {
    let mut walked = (None, Vec::new(), None);
    for &id in path {
        match dag.edge(id).origin {
            Origin::Enter(e) => walked.0 = Some(graph.to(e)),
            Origin::Real(e) => walked.1.push(e),
            Origin::Leave(e) => walked.2 = Some(e),
            Origin::Stop(_) => {}
        }
    }
    walked
}

/// Takes a random walk, counts it by the plan's actions, and logs it directly.
fn count_random_walk(
    random: &mut Random,
    graph: &Graph,
    plan: &Plan,
    counts: &mut BTreeMap<i64, u64>,
    log: &mut BTreeMap<WalkedPath, u64>,
) {
    let (mut at, mut register) = (graph.entry(), 0i64);
    let mut current: WalkedPath = (None, Vec::new(), None);
    let exit_ends = graph.out(graph.exit()).is_empty();
    for step in 0.. {
        // The walk ends in the middle of a path, which is then not counted.
        if step >= 40 && !(at == graph.exit() && exit_ends) {
            return;
        }
        let out = graph.out(at);
        if out.is_empty() || (at == graph.exit() && random.chance(50)) {
            // At an exit that ends all paths, the edge into the exit has counted the path; elsewhere the path is counted now.
            let stop = plan.dag.out(at).iter().find(|e| matches!(plan.dag.edge(**e).origin, Origin::Stop(_)));
            if at != graph.exit() || !exit_ends {
                *counts.entry(register + stop.map_or(0, |e| plan.probes.increment(*e))).or_default() += 1;
            }
            *log.entry(current).or_default() += 1;
            return;
        }
        let edge = random.pick(out);
        match plan.action(graph, edge) {
            RegisterAction::Add { increment } => register += increment,
            RegisterAction::Count { increment } => *counts.entry(register + increment).or_default() += 1,
            RegisterAction::CountAndRestart { increment, start } => {
                *counts.entry(register + increment).or_default() += 1;
                register = start;
            }
            RegisterAction::Dead => panic!("a walk took a dead edge"),
        }
        if plan.dag.cut(edge).is_some() {
            current.2 = (at != graph.exit()).then_some(edge);
            let begin = (graph.to(edge) != graph.entry()).then_some(graph.to(edge));
            *log.entry(std::mem::replace(&mut current, (begin, Vec::new(), None))).or_default() += 1;
        } else {
            current.1.push(edge);
        }
        at = graph.to(edge);
    }
}

#[test]
fn plans_count_what_a_log_of_the_walks_contains() {
    let (mut limited, mut negative) = (0, 0);
    for seed in 0..GRAPHS {
        let mut random = Random::new(seed ^ 0x5eed_0000);
        let graph = random_graph(&mut random);
        let cuts = forced_cuts(&mut random, &graph);
        let hints: Vec<BranchHint> = graph
            .edges()
            .map(|_| random.pick(&[BranchHint::None, BranchHint::None, BranchHint::Weight(7.0), BranchHint::Cold, BranchHint::Never]))
            .collect();
        let frequencies = Frequencies::estimate(&graph, &branch_weights(&graph, &hints));
        assert!(graph.edges().all(|e| frequencies.edge(e).is_finite() && frequencies.edge(e) >= 0.0), "seed {seed}");
        let options = plan_options(&mut random);
        let plan = Plan::ball_larus(&graph, &cuts, &frequencies, &options);
        limited += u64::from(plan.dag.cuts().iter().any(|c| c.reason == CutReason::Limit));
        negative += u64::from(plan.probes.increments().iter().any(|i| *i < 0));
        let (mut counts, mut log) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..12 {
            count_random_walk(&mut random, &graph, &plan, &mut counts, &mut log);
        }
        let mut decoded = BTreeMap::<WalkedPath, u64>::new();
        for (id, count) in counts {
            let path = u64::try_from(id).ok().and_then(|id| plan.numbering.path(&plan.dag, id));
            let path = path.unwrap_or_else(|| panic!("seed {seed}: there is no path {id}"));
            *decoded.entry(to_walked_path(&plan.dag, &graph, &path)).or_default() += count;
        }
        assert_eq!(decoded, log, "seed {seed}, {options:?}");
    }
    assert!(limited >= 1_000 && negative >= 1_000, "{limited} limited, {negative} with negative increments");
}

#[test]
fn limits_that_can_be_met_are_met() {
    let mut limited = 0;
    for seed in 0..3_000 {
        let mut random = Random::new(seed ^ 0x11e17);
        let graph = graph(&mut random, 40, 120, CycleKind::Some);
        let frequencies = Frequencies::estimate(&graph, &vec![1.0; graph.edge_count()]);
        let max_paths = (graph.edge_count() + graph.node_count() + 1) as u64;
        let options = PlanOptions { max_paths, entries: Entries::Shared, chords: true, hot_first: false };
        let plan = Plan::ball_larus(&graph, &[], &frequencies, &options);
        assert!(plan.numbering.paths() <= max_paths, "seed {seed}: {} paths, {max_paths} wanted", plan.numbering.paths());
        limited += u64::from(plan.dag.cuts().iter().any(|c| c.reason == CutReason::Limit));
    }
    assert!(limited >= 300, "{limited} graphs had to be cut");
}

#[test]
fn example_of_the_1996_paper_has_the_published_numbers() {
    // Figure 1 and table 1: nodes A to F, paths ACDF 0, ACDEF 1, ABCDF 2, ABCDEF 3, ABDF 4, ABDEF 5. The out-edges are in the order that
    // gives these numbers.
    let n = |c: char| Node(c as u32 - 'A' as u32);
    let edges = ["AC", "AB", "BC", "BD", "CD", "DF", "DE", "EF"];
    let ends = edges.iter().map(|e| (n(e.as_bytes()[0] as char), n(e.as_bytes()[1] as char))).collect();
    let graph = Graph::new(6, n('A'), n('F'), ends).unwrap();
    let dag = Dag::new(&graph, &[], Entries::PerEdge);
    let numbering = Numbering::ball_larus(&dag).unwrap();
    for (id, blocks) in ["ACDF", "ACDEF", "ABCDF", "ABCDEF", "ABDF", "ABDEF"].iter().enumerate() {
        let path = numbering.path(&dag, id as u64).unwrap();
        let mut text: String = path.iter().map(|e| char::from(b'A' + dag.edge(*e).from.0 as u8)).collect();
        text.push('F');
        assert_eq!(text, *blocks);
    }
}
