//! Schemes against brute force on random acyclic graphs, and the examples of the thesis.
//!
//! The oracle enumerates paths and adds values edge by edge; it has only the graph in common with the code under test.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::{Dag, DagEdgeId, DagEdgeSet, Edge, Graph, Node, Numbering, NumberingScheme};
use trodden_selective::{Budget, Classification, NumberOptions, PathClass, RegisterPlacement, SpanSearchEnd, number, preferential};
use trodden_selective::{InterestingSet, Labelling, NumberingError};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, graph};

const GRAPHS: u64 = 20_000;
const MAX_PATHS: u64 = 400;

type Path = Vec<DagEdgeId>;

/// Returns a DAG with at least two and not too many paths, all its paths, and some interesting ones.
fn random_case(random: &mut Random) -> (Dag, Vec<Path>, BTreeSet<Path>) {
    loop {
        let cycles = if random.chance(70) { CycleKind::None } else { CycleKind::Some };
        let dag = Dag::new(&graph(random, 9, 20, cycles), &[], Entries::PerEdge);
        let few = |n: u64| (2..=MAX_PATHS).contains(&n);
        if !Numbering::ball_larus(&dag).is_ok_and(|n| few(n.paths())) {
            continue;
        }
        let paths = all_paths(&dag, usize::MAX).unwrap();
        let most = 1 + random.index(paths.len().min(25));
        let interesting = (0..most).map(|_| paths[random.index(paths.len())].clone()).collect();
        return (dag, paths, interesting);
    }
}

fn sum(path: &[DagEdgeId], values: &[i64]) -> i64 {
    path.iter().map(|e| values[e.index()]).sum()
}

fn closure(dag: &Dag, paths: &[Path], interesting: &BTreeSet<Path>) -> BTreeSet<Path> {
    let edges: BTreeSet<DagEdgeId> = interesting.iter().flatten().copied().collect();
    assert!(edges.len() <= dag.edges().len());
    paths.iter().filter(|p| p.iter().all(|e| edges.contains(e))).cloned().collect()
}

fn interesting_set(dag: &Dag, interesting: &BTreeSet<Path>) -> InterestingSet {
    let list: Vec<Path> = interesting.iter().cloned().collect();
    InterestingSet::from_paths(dag, &Numbering::ball_larus(dag).unwrap(), &list).unwrap()
}

/// Checks that interesting paths are recognised, each as a different one. Returns how many other paths are recognised as interesting.
fn assert_paths_are_recognised(seed: u64, dag: &Dag, labelling: &Labelling, paths: &[Path], interesting: &BTreeSet<Path>) -> usize {
    let mut reported = BTreeMap::new();
    for path in interesting {
        let PathClass::Known(slot) = labelling.classify(dag, labelling.register_values(path)) else {
            panic!("seed {seed}: {path:?} is not known")
        };
        assert!(u128::from(slot) < labelling.slots(), "seed {seed}");
        assert_eq!(reported.insert(slot, path), None, "seed {seed}, {}: two paths have slot {slot}", labelling.scheme.name());
    }
    let all = Numbering::ball_larus(dag).unwrap();
    for (slot, path) in &reported {
        assert_eq!(labelling.path(dag, &all, *slot).as_ref(), Some(*path), "seed {seed}");
    }
    let known = |p: &&Path| matches!(labelling.classify(dag, labelling.register_values(p)), PathClass::Known(_));
    paths.iter().filter(|p| !interesting.contains(*p)).filter(known).count()
}

const SCHEMES: [NumberingScheme; 7] = [
    NumberingScheme::Spp,
    NumberingScheme::Mspp,
    NumberingScheme::Pertinent,
    NumberingScheme::Pspp,
    NumberingScheme::Ppp,
    NumberingScheme::KnownTable,
    NumberingScheme::Approximate,
];

#[test]
fn exact_schemes_distinguish_every_path_and_others_are_measured() {
    let (mut invalid, mut approximate, mut wrong) = (0, 0, 0.0);
    for seed in 0..GRAPHS {
        let mut random = Random::new(seed);
        let (dag, paths, mut interesting) = random_case(&mut random);
        let mut set = interesting_set(&dag, &interesting);
        // In half of the cases, the set is given by edges.
        let marked = DagEdgeSet::from_fn(dag.edges().len(), |_| random.chance(70));
        if let (0, Ok(by_edges)) = (seed % 2, InterestingSet::from_edges(&dag, &marked)) {
            set = by_edges;
            interesting = paths.iter().filter(|p| p.iter().all(|e| marked.contains(*e))).cloned().collect();
        }
        let closed = closure(&dag, &paths, &interesting);
        assert_eq!(set.closure(), closed.len() as u128, "seed {seed}");
        let weights: Vec<f64> = dag.edge_ids().map(|_| random.below(100) as f64).collect();
        let options = NumberOptions {
            restarts: random.pick(&[0, 4]),
            placement: random.pick(&[RegisterPlacement::Direct, RegisterPlacement::Chords, RegisterPlacement::Cheaper]),
            ..NumberOptions::default()
        };
        for scheme in SCHEMES {
            let labelling = number(scheme, &dag, &weights, &set, &options).unwrap();
            let interesting = if scheme.selects_edges() { &closed } else { &interesting };
            assert_eq!(labelling.interesting(), interesting.len() as u128, "seed {seed}");
            match scheme {
                NumberingScheme::Spp => invalid += count_if_spp_is_invalid(&labelling, &paths, &closed),
                _ => {
                    let aliases = assert_paths_are_recognised(seed, &dag, &labelling, &paths, interesting);
                    assert!(aliases == 0 || !scheme.is_exact(), "seed {seed}: {} takes {aliases} paths for others", scheme.name());
                    if scheme == NumberingScheme::Approximate {
                        approximate += u64::from(aliases > 0);
                        wrong += aliases as f64 / (paths.len() - interesting.len()).max(1) as f64;
                    }
                }
            }
        }
    }
    let percent = |n: f64| n * 100.0 / GRAPHS as f64;
    println!(
        "SPP is invalid in {:.1} % of {GRAPHS} cases; one counter alone takes some other path for an interesting one in {:.1} %, {:.1} % \
            of the other paths on average",
        percent(invalid as f64),
        percent(approximate as f64),
        percent(wrong)
    );
    assert!(invalid > 0 && approximate > 0, "the baselines are as precise as the others");
}

fn count_if_spp_is_invalid(labelling: &Labelling, paths: &[Path], closed: &BTreeSet<Path>) -> u64 {
    let mut seen: BTreeMap<i64, bool> = BTreeMap::new();
    let clash = |p: &Path| {
        let interesting = closed.contains(p);
        seen.insert(labelling.register_values(p)[0], interesting).is_some_and(|before| before || interesting)
    };
    u64::from(paths.iter().map(clash).filter(|c| *c).count() > 0)
}

#[test]
fn pspp_is_ball_larus_if_all_paths_are_interesting_and_never_needs_more_probes() {
    for seed in 0..GRAPHS {
        let mut random = Random::new(seed ^ 0x9599);
        let (dag, _, _) = random_case(&mut random);
        let weights = vec![1.0; dag.edges().len()];
        let options = NumberOptions { placement: RegisterPlacement::Direct, ..NumberOptions::default() };
        let everything = number(NumberingScheme::Pspp, &dag, &weights, &InterestingSet::all(&dag), &options).unwrap();
        let all = Numbering::ball_larus(&dag).unwrap();
        assert_eq!(everything.registers()[0].values, all.values(), "seed {seed}");
        let mut marked = DagEdgeSet::full(dag.edges().len());
        let mut most = everything.labels(&dag);
        while let Some(edge) = dag.edge_ids().filter(|e| marked.contains(*e)).nth(random.index(dag.edges().len())) {
            marked.remove(edge);
            let Ok(set) = InterestingSet::from_edges(&dag, &marked) else { break };
            let labels = number(NumberingScheme::Pspp, &dag, &weights, &set, &options).unwrap().labels(&dag);
            assert!(labels <= most, "seed {seed}: {labels} labels, {most} for more paths");
            most = labels;
        }
    }
}

fn graph_of_letters(edges: &[&str], entry: char, exit: char) -> Dag {
    let mut names = vec![entry, exit];
    names.extend(edges.iter().flat_map(|e| e.chars()).filter(|c| *c != entry && *c != exit));
    let mut seen = BTreeSet::new();
    names.retain(|n| seen.insert(*n));
    let node = |c: char| Node(names.iter().position(|n| *n == c).unwrap() as u32);
    let ends = edges.iter().map(|e| (node(e.chars().next().unwrap()), node(e.chars().nth(1).unwrap()))).collect();
    let graph = Graph::new(names.len() as u32, node(entry), node(exit), ends).unwrap();
    Dag::new(&graph, &[], Entries::PerEdge)
}

fn path(dag: &Dag, edges: &[&str], word: &str) -> Path {
    let letters: Vec<char> = word.chars().collect();
    let place = |pair: &[char]| edges.iter().position(|e| e.chars().eq(pair.iter().copied())).unwrap();
    letters.windows(2).map(|pair| dag.real(Edge(place(pair) as u32)).unwrap()).collect()
}

const EDGES_OF_FIGURE_3_4: [&str; 8] = ["sa", "ac", "cd", "dt", "ct", "ab", "bc", "sb"];

#[test]
fn figure_3_4_has_the_published_numbers() {
    let dag = graph_of_letters(&EDGES_OF_FIGURE_3_4, 's', 't');
    let word = |w: &str| path(&dag, &EDGES_OF_FIGURE_3_4, w);
    let interesting: BTreeSet<Path> = ["sacdt", "sact", "sbct"].map(word).into();
    let labelling = number(NumberingScheme::Ppp, &dag, &[1.0; 8], &interesting_set(&dag, &interesting), &NumberOptions::default()).unwrap();
    let values = &labelling.registers()[0].values;
    let expected = [("sb", 2), ("bc", -1), ("ct", 1)];
    for (at, edge) in EDGES_OF_FIGURE_3_4.iter().enumerate() {
        let value = expected.iter().find(|(e, _)| e == edge).map_or(0, |e| e.1);
        assert_eq!(values[dag.real(Edge(at as u32)).unwrap().index()], value, "{edge}");
    }
    assert_eq!(["sacdt", "sact", "sbct", "sabct", "sbcdt"].map(|w| sum(&word(w), values)), [0, 1, 2, 0, 1]);
    assert_eq!((labelling.span().width(), labelling.delta()), (3, 1.0));
    for alias in ["sabct", "sbcdt", "sabcdt"] {
        assert_eq!(labelling.classify(&dag, labelling.register_values(&word(alias))), PathClass::Unknown, "{alias}");
    }
    // With these values, two other paths have the numbers of interesting ones; approximate separation finds values without aliases.
    let approximate =
        number(NumberingScheme::Approximate, &dag, &[1.0; 8], &interesting_set(&dag, &interesting), &NumberOptions::default()).unwrap();
    assert_eq!(assert_paths_are_recognised(0, &dag, &approximate, &all_paths(&dag, usize::MAX).unwrap(), &interesting), 0);
}

#[test]
fn figure_3_5_cannot_be_separated_by_numbers_alone() {
    let edges = ["sa", "sb", "ac", "bc", "cd", "ce", "dt", "et"];
    let dag = graph_of_letters(&edges, 's', 't');
    let word = |w: &str| path(&dag, &edges, w);
    let interesting: BTreeSet<Path> = ["sacet", "sbcdt"].map(word).into();
    let set = interesting_set(&dag, &interesting);
    // For any values, sacet + sbcdt = sacdt + sbcet, so sacdt and sbcet cannot both exceed both of the interesting paths.
    for a in -3..4i64 {
        for (b, c, d) in (0..343).map(|i| (i % 7 - 3, i / 7 % 7 - 3, i / 49 - 3)) {
            let (first, second, third, fourth) = (a + c, b + d, a + d, b + c);
            assert!(first == second || first.max(second) > 1 || first.min(second) < 0 || third.min(fourth) < 2);
        }
    }
    let labelling = number(NumberingScheme::Ppp, &dag, &[1.0; 8], &set, &NumberOptions::default()).unwrap();
    assert_eq!(labelling.span().width(), 2);
    assert_eq!(assert_paths_are_recognised(0, &dag, &labelling, &all_paths(&dag, usize::MAX).unwrap(), &interesting), 0);
}

#[test]
fn figure_3_6_has_no_perfect_numbers_and_its_least_span_is_7() {
    let edges = ["sa", "sb", "sc", "ad", "bd", "cd", "de", "df", "dg", "et", "ft", "gt"];
    let dag = graph_of_letters(&edges, 's', 't');
    let interesting: BTreeSet<Path> = ["sadft", "sadgt", "sbdet", "sbdgt", "scdet", "scdft"].map(|w| path(&dag, &edges, w)).into();
    let labelling =
        number(NumberingScheme::PppOptimal, &dag, &[1.0; 12], &interesting_set(&dag, &interesting), &NumberOptions::default()).unwrap();
    let proof = labelling.proof().unwrap();
    assert_eq!((labelling.span().width(), proof.bound, proof.end), (7, 7, SpanSearchEnd::Optimal));
    assert_eq!(assert_paths_are_recognised(0, &dag, &labelling, &all_paths(&dag, usize::MAX).unwrap(), &interesting), 0);
}

#[test]
fn only_the_optimum_fills_the_holes_of_figure_3_11() {
    // The graph of figure 3.6, whose 6 numbers leave a hole in a span of 7, in parallel with one more path, which fits the hole.
    let edges = ["sa", "sb", "sc", "ad", "bd", "cd", "de", "df", "dg", "et", "ft", "gt", "st"];
    let dag = graph_of_letters(&edges, 's', 't');
    let words = ["sadft", "sadgt", "sbdet", "sbdgt", "scdet", "scdft", "st"];
    let interesting: BTreeSet<Path> = words.map(|w| path(&dag, &edges, w)).into();
    let set = interesting_set(&dag, &interesting);
    let options = NumberOptions { restarts: 200, ..NumberOptions::default() };
    let ppp = number(NumberingScheme::Ppp, &dag, &[1.0; 13], &set, &options).unwrap();
    assert!(ppp.delta() > 1.0, "no order of out-edges lets intervals overlap");
    let best = number(NumberingScheme::PppOptimal, &dag, &[1.0; 13], &set, &options).unwrap();
    assert_eq!((best.delta(), best.proof().unwrap().bound), (1.0, 7));
}

#[test]
fn optimum_matches_brute_force_and_is_never_worse_than_ppp() {
    let (mut better, mut closed) = (0, 0);
    for seed in 0..3_000 {
        let mut random = Random::new(seed ^ 0x0071);
        let (dag, paths, mut interesting) = random_case(&mut random);
        while interesting.len() > 6 {
            interesting.pop_first();
        }
        let set = interesting_set(&dag, &interesting);
        let weights = vec![1.0; dag.edges().len()];
        let options = NumberOptions { restarts: 0, ..NumberOptions::default() };
        let ppp = number(NumberingScheme::Ppp, &dag, &weights, &set, &options).unwrap();
        let best = number(NumberingScheme::PppOptimal, &dag, &weights, &set, &options).unwrap();
        let (span, proof) = (best.span().width(), best.proof().unwrap());
        assert!(span <= ppp.span().width(), "seed {seed}");
        assert_eq!(u128::from(proof.bound), span, "seed {seed}: {proof:?}");
        assert_eq!(assert_paths_are_recognised(seed, &dag, &best, &paths, &interesting), 0);
        better += u64::from(span < ppp.span().width());
        closed += u64::from(proof.end == SpanSearchEnd::ClosedForm);
        if span > interesting.len() as u128 {
            let numbers: Vec<Path> = interesting.iter().cloned().collect();
            assert!(!fits_in_span(&dag, &numbers, span as i64 - 1), "seed {seed}: {span} is not the least span");
        }
    }
    assert!(better >= 30 && closed >= 100, "{better} better than PPP, {closed} in closed form");
}

/// Returns true if some labelling gives the paths different numbers below `span`. Tries every assignment of numbers, and determines by
/// floating-point elimination whether real values of the edges give it. Integer solutions are among the real ones, so `false` is a proof.
fn fits_in_span(dag: &Dag, paths: &[Path], span: i64) -> bool {
    let mut numbers = vec![0i64; paths.len()];
    loop {
        let distinct = numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
        if distinct && is_consistent(dag, paths, &numbers) {
            return true;
        }
        let Some(at) = numbers.iter().position(|n| n + 1 < span) else { return false };
        numbers[at] += 1;
        numbers[..at].iter_mut().for_each(|n| *n = 0);
    }
}

fn is_consistent(dag: &Dag, paths: &[Path], numbers: &[i64]) -> bool {
    let width = dag.edges().len();
    let row = |(path, number): (&Path, &i64)| {
        let mut row = vec![0.0; width + 1];
        path.iter().for_each(|e| row[e.index()] = 1.0);
        row[width] = *number as f64;
        row
    };
    let mut rows: Vec<Vec<f64>> = paths.iter().zip(numbers).map(row).collect();
    let mut done = 0;
    for column in 0..width {
        let Some(pivot) = (done..rows.len()).find(|r| rows[*r][column].abs() > 1e-9) else { continue };
        rows.swap(done, pivot);
        for other in done + 1..rows.len() {
            let times = rows[other][column] / rows[done][column];
            let pivot_row = rows[done].clone();
            rows[other].iter_mut().zip(pivot_row).for_each(|(o, p)| *o -= times * p);
        }
        done += 1;
    }
    rows[done..].iter().all(|r| r[width].abs() < 1e-6)
}

#[test]
fn thirty_paths_are_proven_optimal() {
    for seed in 0..30 {
        let mut random = Random::new(seed ^ 0x3030);
        let (dag, all) = loop {
            let dag = Dag::new(&graph(&mut random, 24, 60, CycleKind::None), &[], Entries::PerEdge);
            let all = Numbering::ball_larus(&dag).unwrap();
            if all.paths() >= 60 {
                break (dag, all);
            }
        };
        let mut ids = BTreeSet::new();
        while ids.len() < 30 {
            ids.insert(random.below(all.paths()));
        }
        let set = InterestingSet::from_ids(&dag, &all, &ids.into_iter().collect::<Vec<_>>()).unwrap();
        let best = number(NumberingScheme::PppOptimal, &dag, &vec![1.0; dag.edges().len()], &set, &NumberOptions::default()).unwrap();
        assert_eq!(best.span().width(), u128::from(best.proof().unwrap().bound), "seed {seed}: {:?}", best.proof());
    }
}

#[test]
fn thirty_paths_through_branches_in_a_row_are_proven_optimal() {
    for (length, seeds) in [(6, 1), (8, 1), (12, 2), (16, 2)] {
        let edges = (0..length).flat_map(|d| [(Node(d), Node(d + 1)); 2]).collect();
        let dag = Dag::new(&Graph::new(length + 1, Node(0), Node(length), edges).unwrap(), &[], Entries::PerEdge);
        let all = Numbering::ball_larus(&dag).unwrap();
        for seed in 0..seeds {
            let (mut random, mut ids) = (Random::new(seed), BTreeSet::new());
            while ids.len() < 30 {
                ids.insert(random.below(all.paths()));
            }
            let set = InterestingSet::from_ids(&dag, &all, &ids.into_iter().collect::<Vec<_>>()).unwrap();
            let options = NumberOptions { budget: Budget { steps: 100_000_000, ..Budget::default() }, ..NumberOptions::default() };
            let best = number(NumberingScheme::PppOptimal, &dag, &vec![1.0; dag.edges().len()], &set, &options).unwrap();
            assert_eq!(best.span().width(), u128::from(best.proof().unwrap().bound), "{length} branches, seed {seed}: {:?}", best.proof());
        }
    }
}

#[test]
fn more_orders_never_increase_the_span() {
    let mut better = 0;
    for seed in 0..2_000 {
        let mut random = Random::new(seed ^ 0x0fde);
        let (dag, _, interesting) = random_case(&mut random);
        let list: Vec<Path> = interesting.into_iter().collect();
        let (plain, tried) = (preferential(&dag, &list, 0).unwrap().span, preferential(&dag, &list, 16).unwrap().span);
        assert!(tried <= plain && tried >= list.len() as u64, "seed {seed}");
        better += u64::from(tried < plain);
    }
    assert!(better >= 100, "{better}");
}

#[test]
fn paths_through_nodes_are_a_closure() {
    let mut none = 0;
    for seed in 0..5_000 {
        let mut random = Random::new(seed ^ 0x7409);
        let (dag, paths, _) = random_case(&mut random);
        let nodes: Vec<Node> = (0..1 + random.below(2)).map(|_| Node(random.below(dag.node_count() as u64) as u32)).collect();
        let visits = |p: &&Path| nodes.iter().all(|n| *n == dag.entry() || p.iter().any(|e| dag.edge(*e).to == *n));
        let expected: BTreeSet<Path> = paths.iter().filter(visits).cloned().collect();
        let Ok(set) = InterestingSet::through(&dag, &nodes) else {
            none += 1;
            assert!(expected.is_empty(), "seed {seed}");
            continue;
        };
        assert_eq!(set.paths(&dag).unwrap().into_iter().collect::<BTreeSet<_>>(), expected, "seed {seed}");
        let labelling = number(NumberingScheme::Pertinent, &dag, &vec![1.0; dag.edges().len()], &set, &NumberOptions::default()).unwrap();
        assert_eq!((labelling.span().low, labelling.delta()), (0, 1.0), "seed {seed}");
    }
    assert!((100..4_000).contains(&none));
}

#[test]
fn errors_name_the_impossible_request() {
    let diamonds: Vec<(Node, Node)> = (0..30).flat_map(|d| [(Node(d), Node(d + 1)); 2]).collect();
    let dag = Dag::new(&Graph::new(31, Node(0), Node(30), diamonds).unwrap(), &[], Entries::PerEdge);
    let all = Numbering::ball_larus(&dag).unwrap();
    let run = |scheme, set: &InterestingSet| number(scheme, &dag, &[1.0; 60], set, &NumberOptions::default());
    let everything = InterestingSet::all(&dag);
    assert!(matches!(run(NumberingScheme::Mspp, &everything), Err(NumberingError::TooLargeForRepair { paths, .. }) if paths == 1 << 30));
    assert!(matches!(run(NumberingScheme::Ppp, &everything), Err(NumberingError::TooManyInteresting { paths, .. }) if paths == 1 << 30));
    assert_eq!(InterestingSet::from_ids(&dag, &all, &[1 << 30]), Err(NumberingError::NoSuchId { id: 1 << 30, paths: 1 << 30 }));
    assert_eq!(InterestingSet::from_paths(&dag, &all, &[]), Err(NumberingError::NothingInteresting));
    assert!(matches!(InterestingSet::from_paths(&dag, &all, &[vec![DagEdgeId(0)]]), Err(NumberingError::NoPath { number: 0, .. })));
    assert!(matches!(run(NumberingScheme::Pspp, &everything).unwrap().classification(), Classification::Closure { .. }));
}
