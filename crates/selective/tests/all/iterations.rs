//! Paths over iterations on random graphs: each copy counts at some of the ends of a function's paths. Together, the copies count each path
//! over iterations in the set as often as it occurs in random walks, and all others together.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::part::PathEnds;
use trodden_flow::plan::probe_costs;
use trodden_flow::program::operation::Operation;
use trodden_flow::program::verify::{WalkBudget, verify_counts, verify_numbering};
use trodden_flow::{Dag, DagEdgeId, Edge, Graph, Numbering, Origin, Plan, ProbeProgram, Probes};
use trodden_selective::iterations::{IterationNumbering, IterationNumberingError};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, forced_cuts, graph};

type Counts = BTreeMap<Vec<u64>, u64>;

/// Returns a walk from entry to exit, random at first, or `None` if the exit cannot be reached.
fn random_walk(random: &mut Random, graph: &Graph) -> Option<Vec<Edge>> {
    let mut leads = vec![false; graph.node_count()];
    leads[graph.exit().index()] = true;
    let mut last_round = Vec::new();
    loop {
        let found: Vec<Edge> = graph.edges().filter(|e| leads[graph.to(*e).index()] && !leads[graph.from(*e).index()]).collect();
        if found.is_empty() {
            break;
        }
        found.iter().for_each(|e| leads[graph.from(*e).index()] = true);
        last_round.extend(found);
    }
    let (mut at, mut taken) = (graph.entry(), Vec::new());
    while at != graph.exit() {
        let out: Vec<Edge> = graph.out(at).iter().filter(|e| leads[graph.to(**e).index()]).copied().collect();
        let edge = match taken.len() < 60 {
            true if out.is_empty() => return None,
            true => random.pick(&out),
            // The first edge that was found at a node leads towards the exit.
            false => *last_round.iter().find(|e| graph.from(**e) == at)?,
        };
        taken.push(edge);
        at = graph.to(edge);
    }
    Some(taken)
}

/// Splits a walk at cut edges, and returns the numbers of the resulting paths.
fn split_walk(walk: &[Edge], dag: &Dag, numbering: &Numbering) -> Vec<u64> {
    let (mut paths, mut current): (Vec<u64>, Vec<DagEdgeId>) = (Vec::new(), Vec::new());
    for edge in walk {
        match (dag.real(*edge), dag.cut(*edge)) {
            (Some(id), _) => current.push(id),
            (None, Some(cut)) => {
                current.extend(cut.leave);
                paths.push(numbering.id(&std::mem::replace(&mut current, cut.enter.into_iter().collect())));
            }
            (None, None) => panic!("the edge is not reachable"),
        }
    }
    paths.push(numbering.id(&current));
    paths
}

/// Returns, after each path of an activation, the most recent `iterations` paths, or fewer at the beginning.
fn iteration_paths(paths: &[u64], iterations: usize) -> impl Iterator<Item = Vec<u64>> + '_ {
    (1..=paths.len()).map(move |end| paths[end.saturating_sub(iterations)..end].to_vec())
}

struct CountingCopy {
    program: ProbeProgram,
    numbered: IterationNumbering,
    paths: Vec<Vec<u64>>,
    /// For each edge, whether the copy counts paths that end there.
    counts_at: Vec<bool>,
}

impl CountingCopy {
    /// Executes an activation and adds its counts. Returns the number of other paths that end where this copy counts.
    fn run(&self, walk: &[Edge], counts: &mut Counts) -> u64 {
        let (dag, mut register, mut context, mut others) = (self.program.dag(), 0i64, 0, 0);
        for edge in walk {
            let (mut sum, end) = (None, dag.real(*edge).or_else(|| dag.cut(*edge)?.leave));
            for operation in self.program.operations(*edge) {
                match *operation {
                    Operation::Add(by) => register += by,
                    Operation::Set(value) => register = value,
                    Operation::Count { increment } => sum = Some(register + increment),
                    other => panic!("{other:?}"),
                }
            }
            if end.is_some_and(|end| self.counts_at[end.index()]) {
                let sum = sum.expect("an end has a sum");
                match self.numbered.keys.get(&self.numbered.key(context, sum)) {
                    Some(path) => *counts.entry(self.paths[*path].clone()).or_default() += 1,
                    None => others += 1,
                }
            }
            if dag.cut(*edge).is_some() {
                context = self.numbered.next_context(self.numbered.key(context, sum.expect("a cut edge has a sum")));
            }
        }
        others
    }
}

/// Limits a program to counting at these ends, and to the sums that cut edges need. Returns the number of removed increments.
fn count_only_at(program: &mut ProbeProgram, ends: impl Iterator<Item = DagEdgeId>) -> usize {
    let increments = |program: &ProbeProgram| {
        let operations = program.graph().edges().flat_map(|edge| program.operations(edge));
        operations.filter(|operation| matches!(operation, Operation::Add(_))).count()
    };
    let before = increments(program);
    let dag = program.dag().clone();
    let counted: BTreeSet<Edge> = ends
        .filter_map(|end| match dag.edge(end).origin {
            Origin::Real(edge) | Origin::Leave(edge) => Some(edge),
            Origin::Enter(_) | Origin::Stop(_) => None,
        })
        .collect();
    program.keep_counts_only_on(|edge| counted.contains(&edge), |edge| dag.cut(edge).is_some());
    before - increments(program)
}

fn probe_program(graph: &Graph, (dag, numbering): (&Dag, &Numbering), numbered: &IterationNumbering, on_chords: bool) -> ProbeProgram {
    let frequencies = Frequencies::estimate(graph, &vec![1.0; graph.edge_count()]);
    let probes = match on_chords {
        true => Probes::on_chords(dag, &numbered.labels, &probe_costs(dag, graph, &frequencies)),
        false => Probes::direct(&numbered.labels),
    };
    let plan = Plan { dag: dag.clone(), numbering: numbering.clone(), probes, partial: None, part: None };
    ProbeProgram::from_labels(graph, &plan, numbered.interesting.clone())
}

#[test]
fn copies_count_paths_over_iterations() {
    let (mut executions, mut distinct, mut unknown, mut divided, mut early, mut removed) = (0u64, 0, 0, 0, 0, 0);
    for seed in 0..16_000 {
        let mut random = Random::new(seed ^ 0x17e7);
        let graph = graph(&mut random, 9, 18, CycleKind::Some);
        let dag = Dag::new(&graph, &forced_cuts(&mut random, &graph), random.pick(&[Entries::PerEdge, Entries::Shared]));
        let Ok(numbering) = Numbering::ball_larus(&dag) else { continue };
        let walks: Vec<Vec<Edge>> = (0..4).filter_map(|_| random_walk(&mut random, &graph)).collect();
        let iterations = 2 + random.index(3);
        let mut expected = Counts::new();
        for walk in &walks {
            iteration_paths(&split_walk(walk, &dag, &numbering), iterations).for_each(|path| *expected.entry(path).or_default() += 1);
        }
        let share = random.pick(&[30, 80, 100]);
        let set: Vec<Vec<u64>> = expected.keys().filter(|_| random.chance(share)).cloned().collect();
        let ends = PathEnds::without_dummy_entry_edges(&dag);
        let owners: Vec<u64> = dag.edge_ids().map(|_| random.below(3)).collect();
        let owner = |path: &[u64]| {
            let edges = numbering.path(&dag, *path.last().unwrap()).unwrap();
            owners[edges.iter().find(|edge| ends.contains(**edge)).unwrap().index()]
        };
        let (mut counts, mut others) = (Counts::new(), 0);
        for copy in 0..3 {
            let paths: Vec<Vec<u64>> = set.iter().filter(|path| owner(path) == copy).cloned().collect();
            let numbered = IterationNumbering::new((&dag, &numbering), iterations as u32, &paths).expect("small graphs have short keys");
            assert_eq!(numbered.keys.len(), paths.len(), "seed {seed}: two paths have the same key");
            let mut program = probe_program(&graph, (&dag, &numbering), &numbered, random.chance(70));
            verify_numbering(&program).unwrap();
            program.move_counts_to_ends(&ends);
            verify_counts(&program, &WalkBudget::default()).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            early += graph.edges().filter(|edge| program.counts_before_path_end(*edge)).count();
            removed += count_only_at(&mut program, ends.edges().iter().copied().filter(|end| owners[end.index()] == copy));
            divided += usize::from(!paths.is_empty() && paths.len() < set.len());
            let counts_at = dag.edge_ids().map(|id| ends.contains(id) && owners[id.index()] == copy).collect();
            let counting = CountingCopy { program, numbered, paths, counts_at };
            others += walks.iter().map(|walk| counting.run(walk, &mut counts)).sum::<u64>();
        }
        let all: u64 = expected.values().sum();
        expected.retain(|path, _| set.contains(path));
        assert_eq!(counts, expected, "seed {seed}");
        assert_eq!(others, all - expected.values().sum::<u64>(), "seed {seed}");
        (executions, distinct, unknown) = (executions + all, distinct + expected.len(), unknown + others);
    }
    assert!(
        executions > 50_000 && distinct > 5_000 && unknown > 5_000 && divided > 500 && early > 1_000 && removed > 50,
        "{executions} executions of {distinct} paths, {unknown} of others; {divided} divisions, {early} early, {removed} removed increments"
    );
}

#[test]
fn keys_longer_than_a_word_are_rejected() {
    let edges = (0..10).flat_map(|node| [(node, node + 1), (node, node + 1)]).chain([(9, 0)]);
    let edges = edges.map(|(from, to)| (trodden_flow::Node(from), trodden_flow::Node(to))).collect();
    let graph = Graph::new(11, trodden_flow::Node(0), trodden_flow::Node(10), edges).unwrap();
    let dag = Dag::new(&graph, &[], Entries::Shared);
    let numbering = Numbering::ball_larus(&dag).unwrap();
    let number = |iterations| {
        let paths: Vec<Vec<u64>> = (0..numbering.paths()).map(|path| vec![path]).collect();
        IterationNumbering::new((&dag, &numbering), iterations, &paths)
    };
    assert_eq!(number(5).unwrap().class_bits, 11);
    assert_eq!(number(6).unwrap_err(), IterationNumberingError::TooLong { iterations: 6, bits: 66 });
    let foreign = IterationNumbering::new((&dag, &numbering), 2, &[vec![numbering.paths()]]);
    assert_eq!(foreign.unwrap_err(), IterationNumberingError::NoPath);
}
