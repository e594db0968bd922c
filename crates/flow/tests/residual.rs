//! Residual plans against full ones: on random walks through random graphs they count every path but the known ones, and little is done on those.

use machine::{Machine, facts};
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::{Action, Plan};
use trodden_flow::schedule::{ByRounds, Choices, Step, UsualRounds};
use trodden_flow::{Doubled, Edge, Graph, Node, Residual};
use trodden_testkit::Random;
use trodden_testkit::graphs::{Cycles, forced, graph, options};

mod machine;

type Counts = BTreeMap<u64, u64>;

/// A walk from the entry to the exit that takes mostly what `habits` prefer.
fn walk(random: &mut Random, graph: &Graph, habits: &[u64]) -> Option<Vec<Edge>> {
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

/// What a full plan counts, and its actions that are not nothing.
fn full(graph: &Graph, plan: &Plan, walks: &[Vec<Edge>]) -> (Counts, u64) {
    let (mut counts, mut work) = (Counts::new(), 0);
    for walk in walks {
        let mut register = 0;
        for edge in walk {
            let action = plan.action(graph, *edge);
            work += u64::from(action != Action::Add { increment: 0 });
            match action {
                Action::Add { increment } => register += increment,
                Action::Count { increment } => *counts.entry((register + increment) as u64).or_default() += 1,
                Action::CountAndRestart { increment, start } => {
                    *counts.entry((register + increment) as u64).or_default() += 1;
                    register = start;
                }
                Action::Poison { .. } | Action::Dead => panic!("no plan here poisons, and no walk takes a dead edge"),
            }
        }
    }
    (counts, work)
}

/// What a residual plan counts, with its work.
fn residual(graph: &Graph, doubled: &Doubled, known: &BTreeSet<u64>, walks: &[Vec<Edge>]) -> (Counts, u64) {
    let (n, m) = (graph.exit().0, graph.edge_count() as u32);
    let (mut counts, mut work) = (Counts::new(), 0);
    for walk in walks {
        let (mut register, mut at) = (0i64, graph.entry());
        for edge in walk {
            let edge = if at.0 < n { *edge } else { Edge(edge.0 + m) };
            assert_eq!(doubled.graph.from(edge), at, "the version has such an edge");
            assert!(doubled.reached[at.index()]);
            let step = doubled.schedule.task(edge).step;
            work += u64::from(doubled.schedule.has_code(edge)) + u64::from(at.0 < n && doubled.graph.to(edge).0 > n);
            match step {
                Step::Plain(Action::Add { increment }) => register += increment,
                Step::Plain(Action::Count { increment }) => *counts.entry((register + increment) as u64).or_default() += 1,
                Step::Plain(Action::CountAndRestart { increment, start }) => {
                    *counts.entry((register + increment) as u64).or_default() += 1;
                    register = start;
                }
                Step::Check { increment, start } => {
                    let id = (register + increment) as u64;
                    if !known.contains(&id) {
                        *counts.entry(id).or_default() += 1;
                    }
                    register = start.unwrap_or(register);
                }
                Step::Restart { start } => register = start,
                Step::Counted => {}
                other => panic!("{other:?} has no place here"),
            }
            at = doubled.graph.to(edge);
        }
        assert_eq!(at, Node(2 * n));
    }
    (counts, work)
}

/// What it counts when rounds of loops are counted otherwise.
fn rearranged(graph: &Graph, doubled: &Doubled, known: &BTreeSet<u64>, walks: &[Vec<Edge>]) -> Counts {
    let (n, m) = (graph.exit().0, graph.edge_count() as u32);
    let mut machine = Machine::default();
    machine.known.clone_from(known);
    for walk in walks {
        let mut at = graph.entry();
        machine.register = 0;
        for edge in walk {
            let edge = if at.0 < n { *edge } else { Edge(edge.0 + m) };
            machine.take(&doubled.schedule, &doubled.graph, edge);
            at = doubled.graph.to(edge);
        }
    }
    machine.counts.into_iter().map(|(id, count)| (id as u64, count)).collect()
}

/// How often walks take each edge of both versions.
fn taken(graph: &Graph, doubled: &Doubled, walks: &[Vec<Edge>]) -> Vec<u64> {
    let (n, m) = (graph.exit().0, graph.edge_count());
    let mut taken = vec![0; 2 * m];
    for walk in walks {
        let mut at = graph.entry();
        for edge in walk {
            let edge = edge.index() + if at.0 < n { 0 } else { m };
            taken[edge] += 1;
            at = doubled.graph.to(Edge(edge as u32));
        }
    }
    taken
}

#[test]
fn everything_is_counted_but_known_paths() {
    let (mut known_paths, mut unknown_paths, mut work_of_full, mut work_of_residual) = (0, 0, 0, 0);
    let (mut by_rounds, mut held) = (0, 0);
    for seed in 0..40_000 {
        let mut random = Random::new(seed ^ 0x4e51_d0a1);
        let graph = graph(&mut random, 10, 18, Cycles::Some);
        if !graph.out(graph.exit()).is_empty() || graph.exit().index() + 1 != graph.node_count() {
            continue;
        }
        let cuts = forced(&mut random, &graph);
        let frequencies = Frequencies::estimate(&graph, &vec![1.0; graph.edge_count()]);
        let plan = Plan::ball_larus(&graph, &cuts, &frequencies, &options(&mut random));
        let habits: Vec<u64> = graph.edges().map(|_| random.below(3)).collect();
        let walks: Vec<Vec<Edge>> = (0..12).filter_map(|_| walk(&mut random, &graph, &habits)).collect();
        let tested = random.index(walks.len() + 1);
        let (known, work) = full(&graph, &plan, &walks[..tested]);
        let (all, _) = full(&graph, &plan, &walks);
        let list: Vec<(u64, u64)> = known.iter().map(|(id, count)| (*id, *count)).collect();
        let residual_paths = Residual::of(&plan.dag, &plan.numbering, &list);
        let probes = residual_paths.probes(&plan.dag, &plan.numbering, &graph, &frequencies);
        let plan = Plan { probes, ..plan };
        let doubled = Doubled::of(&graph, &plan, &residual_paths, &[]);
        let ids: BTreeSet<u64> = known.keys().copied().collect();
        let (counted, _) = residual(&graph, &doubled, &ids, &walks);
        let expected: Counts = all.iter().filter(|(id, _)| !ids.contains(id)).map(|(id, n)| (*id, *n)).collect();
        assert_eq!(counted, expected, "seed {seed}");
        let mut otherwise = doubled.clone();
        let rounds = random.pick(&[ByRounds::No, ByRounds::Often]);
        let choices = Choices { rounds, early: false, usual: UsualRounds::Held };
        otherwise.rearrange_rounds(&plan, &frequencies, &facts(&mut random, &doubled.graph), choices);
        assert_eq!(rearranged(&graph, &otherwise, &ids, &walks), expected, "seed {seed}: {otherwise:?}");
        by_rounds += otherwise.schedule.loops().len();
        held += otherwise.schedule.usual().iter().filter(|u| u.held.is_some()).count();
        assert_eq!(doubled.executions, taken(&graph, &doubled, &walks[..tested]), "seed {seed}");
        known_paths += known.len();
        unknown_paths += expected.len();
        work_of_full += work;
        work_of_residual += residual(&graph, &doubled, &ids, &walks[..tested]).1;
    }
    assert!(known_paths > 10_000 && unknown_paths > 10_000, "{known_paths} known, {unknown_paths} unknown paths");
    assert!(by_rounds > 100 && held > 100, "{by_rounds} loops counted by rounds, {held} held");
    assert!(3 * work_of_residual < work_of_full, "known paths: work on {work_of_residual} edges, of the full plan {work_of_full}");
}

/// Two diamonds in a row: 0 to 1 or 2, to 3, to 4 or 5, to 6.
fn two_diamonds() -> Graph {
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)];
    Graph::new(7, Node(0), Node(6), edges.iter().map(|(a, b)| (Node(*a), Node(*b))).collect()).unwrap()
}

#[test]
fn rare_known_paths_leave_the_inside_so_that_hot_ones_are_not_looked_up() {
    let graph = two_diamonds();
    let frequencies = Frequencies::estimate(&graph, &[1.0; 8]);
    let every = trodden_flow::PlanOptions { max_paths: 100, entries: trodden_flow::dag::Entries::Shared, chords: true, hot_first: false };
    let plan = Plan::ball_larus(&graph, &[], &frequencies, &every);
    let id = |edges: [u32; 4]| plan.numbering.id(&edges.map(|e| plan.dag.real(Edge(e)).unwrap()));
    let (hot, rare) = (id([0, 2, 4, 6]), id([1, 3, 5, 7]));
    let of = |counts: [u64; 2]| {
        let mut known = vec![(hot, counts[0]), (rare, counts[1])];
        known.sort();
        let residual = Residual::of(&plan.dag, &plan.numbering, &known);
        let inside: Vec<bool> = (0..8).map(|e| residual.is_inside(plan.dag.real(Edge(e)).unwrap())).collect();
        (inside, plan.dag.edge_ids().filter(|e| residual.is_unclear(*e)).count())
    };
    // Known edges can be combined to two unknown paths: what is rare gives way.
    let (inside, unclear) = of([1_000_000, 1]);
    assert_eq!((&inside[..], unclear), (&[true, false, true, false, true, false, true, false][..], 0));
    // Where both are as frequent, a look at the end costs less than a way round.
    let (inside, unclear) = of([1_000_000, 1_000_000]);
    assert_eq!((inside, unclear), (vec![true; 8], 2));
}
