//! Checks that the encoder reproduces path numberings on random graphs, and the numbers in the examples of Vaswani's thesis.

use num_bigint::BigInt;
use num_rational::BigRational;
use std::collections::BTreeSet;
use trodden_coding::{CodingModel, log2};
use trodden_flow::dag::Entries;
use trodden_flow::{Dag, DagEdgeId, Graph, Node, Numbering};
use trodden_selective::preferential;
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, graph};

fn ratio(a: i64, b: i64) -> BigRational {
    BigRational::new(a.into(), b.into())
}

#[test]
fn encoder_reproduces_path_numbers() {
    let (mut seen, mut holes) = (0, 0);
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let cycles = random.pick(&[CycleKind::None, CycleKind::Some]);
        let dag = Dag::new(&graph(&mut random, 9, 20, cycles), &[], Entries::PerEdge);
        let all = Numbering::ball_larus(&dag).unwrap();
        if !(2..=200).contains(&all.paths()) {
            continue;
        }
        seen += 1;
        let model = CodingModel::ball_larus(&dag);
        let paths: Vec<Vec<DagEdgeId>> = (0..all.paths()).map(|id| all.path(&dag, id).unwrap()).collect();
        for (id, path) in paths.iter().enumerate() {
            assert_eq!(model.encode(path), Some(id.into()), "seed {seed}");
            assert_eq!(model.decode(&id.into()).as_ref(), Some(path), "seed {seed}");
            assert_eq!(model.probability(path), ratio(1, all.paths() as i64), "seed {seed}");
        }
        let count = BigRational::from_integer(all.paths().into());
        assert!(enclosures_overlap(&model.entropy(40), &log2(&count, 40)), "seed {seed}");
        assert!(model.gamma(all.paths().into(), 40).contains(&ratio(1, 1)), "seed {seed}: gamma of all paths is 1");

        let interesting: BTreeSet<usize> = (0..1 + random.index(12)).map(|_| random.index(paths.len())).collect();
        let interesting: Vec<Vec<DagEdgeId>> = interesting.into_iter().map(|i| paths[i].clone()).collect();
        let ids = preferential(&dag, &interesting, 0).unwrap();
        let model = CodingModel::preferential(&dag, &ids.values, &interesting).unwrap();
        assert_eq!(*model.size(), BigInt::from(ids.span), "seed {seed}");
        for path in &interesting {
            let id: i64 = path.iter().map(|e| ids.values[e.index()]).sum();
            assert_eq!(model.encode(path), Some(id.into()), "seed {seed}");
            assert_eq!(model.decode(&id.into()).as_ref(), Some(path), "seed {seed}");
            assert_eq!(model.probability(path), ratio(1, ids.span as i64), "seed {seed}");
        }
        for context in model.contexts() {
            let mut ranges: Vec<_> = context.choices.iter().map(|c| c.1.clone()).collect();
            ranges.sort();
            assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "seed {seed}: ranges overlap");
            assert!(ranges.iter().all(|r| r.0 >= ratio(0, 1) && r.1 <= ratio(1, 1)), "seed {seed}");
        }
        holes += u64::from(ids.span > interesting.len() as u64);
        let delta = ratio(ids.span as i64, interesting.len() as i64);
        assert!(model.gamma(interesting.len() as u128, 40).contains(&delta), "seed {seed}: gamma is delta");
    }
    assert!(seen >= 1_000 && holes >= 50, "{seen} graphs, {holes} with holes");
}

#[test]
fn numbers_of_measured_models_are_uniquely_decodable() {
    let (mut seen, mut unnumbered) = (0, 0);
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let dag = Dag::new(&graph(&mut random, 7, 14, CycleKind::Some), &[], Entries::PerEdge);
        let all = Numbering::ball_larus(&dag).unwrap();
        let weights: Vec<f64> = dag.edges().iter().map(|_| random.pick(&[0.0, 1.0, 1.0, 2.0, 5.0, 7.0, 0.125])).collect();
        let Ok(model) = CodingModel::from_weights(&dag, &weights) else { continue };
        if !(2..=60).contains(&all.paths()) {
            continue;
        }
        seen += 1;
        // Recomputes the paths' intervals from the weights.
        let mut intervals = Vec::new();
        for path in (0..all.paths()).map(|id| all.path(&dag, id).unwrap()) {
            let (mut low, mut width) = (ratio(0, 1), ratio(1, 1));
            for edge in &path {
                let weight = |e: &DagEdgeId| ratio((weights[e.index()] * 8.0) as i64, 1);
                let out = dag.out(dag.edge(*edge).from);
                let sum: BigRational = out.iter().map(weight).sum();
                let before: BigRational = out.iter().take_while(|e| *e != edge).map(weight).sum();
                low += &width * before / &sum;
                width *= weight(edge) / sum;
            }
            assert_eq!(model.probability(&path), width, "seed {seed}");
            intervals.push((path, low, width));
        }
        let size = BigRational::from_integer(model.size().clone());
        let mut numbers = BTreeSet::new();
        for (path, low, width) in &intervals {
            let number = model.encode(path);
            assert_eq!(number.is_none(), *width == ratio(0, 1), "seed {seed}");
            unnumbered += usize::from(number.is_none());
            let Some(number) = number else { continue };
            let place = BigRational::from_integer(number.clone()) / &size;
            assert!(*low <= place && place < low + width, "seed {seed}: outside of its interval");
            assert_eq!(model.decode(&number).as_ref(), Some(path), "seed {seed}");
            assert!(numbers.insert(number), "seed {seed}: two paths have the same number");
        }
        for number in (0..200).map(BigInt::from).filter(|n| !numbers.contains(n)) {
            assert_eq!(model.decode(&number), None, "seed {seed}: {number} belongs to no path");
        }
    }
    assert!(seen > 500 && unnumbered > 500, "{seen} models, {unnumbered} paths without a number");
}

fn list_paths_if_few(dag: &Dag, all: &Numbering) -> Option<Vec<Vec<DagEdgeId>>> {
    (2..=60).contains(&all.paths()).then(|| (0..all.paths()).map(|id| all.path(dag, id).unwrap()).collect())
}

fn assert_unbounded_order_gives_relative_frequencies(dag: &Dag, paths: &[Vec<DagEdgeId>], executed: &[(Vec<DagEdgeId>, u64)]) {
    let model = CodingModel::from_executed_paths(dag, usize::MAX, executed).unwrap();
    let times: u64 = executed.iter().map(|(_, n)| n).sum();
    for path in paths {
        let own: u64 = executed.iter().filter(|(other, _)| other == path).map(|(_, n)| n).sum();
        assert_eq!(model.probability(path), ratio(own as i64, times as i64));
    }
}

#[test]
fn models_of_every_order_are_uniquely_decodable() {
    let (mut seen, mut unnumbered, mut unexecuted) = (0, 0, 0);
    for seed in 0..1_500 {
        let mut random = Random::new(seed);
        let dag = Dag::new(&graph(&mut random, 8, 16, CycleKind::Some), &[], Entries::PerEdge);
        let all = Numbering::ball_larus(&dag).unwrap();
        let Some(paths) = list_paths_if_few(&dag, &all) else { continue };
        seen += 1;
        let executed: Vec<(Vec<DagEdgeId>, u64)> =
            (0..1 + random.index(6)).map(|_| (paths[random.index(paths.len())].clone(), 1 + random.index(5) as u64)).collect();
        let mut entropy = f64::INFINITY;
        for order in [0, 1, 2, 3, paths.iter().map(Vec::len).max().unwrap()] {
            let model = CodingModel::from_executed_paths(&dag, order, &executed).unwrap();
            // Of the executed steps in the same context, returns the share that takes the same edge.
            let share = |path: &[DagEdgeId], at: usize| {
                let before = &path[at.saturating_sub(order)..at];
                let is_same_context = |other: &[DagEdgeId], place: usize| {
                    dag.edge(other[place]).from == dag.edge(path[at]).from && other[place.saturating_sub(order)..place] == *before
                };
                let sum = |is_counted: &dyn Fn(&[DagEdgeId], usize) -> bool| {
                    let steps = executed.iter().flat_map(|(other, n)| (0..other.len()).map(move |place| (other, place, *n)));
                    steps.filter(|(other, place, _)| is_counted(other, *place)).map(|(.., n)| n as i64).sum::<i64>()
                };
                let (to, from) = (sum(&|other, place| is_same_context(other, place) && other[place] == path[at]), sum(&is_same_context));
                if from == 0 { ratio(0, 1) } else { ratio(to, from) }
            };
            let (mut numbers, mut sum) = (BTreeSet::new(), ratio(0, 1));
            for path in &paths {
                let probability: BigRational = (0..path.len()).map(|at| share(path, at)).product();
                assert_eq!(model.probability(path), probability, "seed {seed}, order {order}");
                let number = model.encode(path);
                assert_eq!(number.is_none(), probability == ratio(0, 1), "seed {seed}, order {order}");
                unnumbered += usize::from(number.is_none());
                unexecuted += usize::from(number.is_some() && executed.iter().all(|(other, _)| other != path));
                sum += probability;
                let Some(number) = number else { continue };
                assert_eq!(model.decode(&number).as_ref(), Some(path), "seed {seed}, order {order}");
                assert!(numbers.insert(number), "seed {seed}, order {order}: two paths have the same number");
            }
            assert_eq!(sum, ratio(1, 1), "seed {seed}, order {order}");
            let free = (0..200).map(BigInt::from).filter(|n| !numbers.contains(n));
            free.for_each(|number| assert_eq!(model.decode(&number), None, "seed {seed}, order {order}: {number} belongs to no path"));
            // A longer context never makes the executed paths less predictable.
            let now = trodden_coding::nearest_f64(&model.entropy(40).high);
            assert!(now <= entropy + 1e-9, "seed {seed}, order {order}: {now} after {entropy} bits");
            entropy = now;
        }
        assert_unbounded_order_gives_relative_frequencies(&dag, &paths, &executed);
    }
    assert!(seen > 500 && unnumbered > 500 && unexecuted > 500, "{seen} graphs; paths: {unnumbered} unnumbered, {unexecuted} unexecuted");
    assert!(CodingModel::from_executed_paths(&figure_4_2(), 1, &[]).is_err());
}

/// Encodes the word `bacc!` with an alphabet of six letters, which have the probabilities 0.2, 0.3, 0.1, 0.2, 0.1 and 0.1.
#[test]
fn encoder_reproduces_example_4_1_1() {
    let mut edges = Vec::new();
    for place in 0..5u32 {
        for letter in 0..6 {
            let middle = 6 + place * 6 + letter;
            edges.extend([(Node(place), Node(middle)), (Node(middle), Node(place + 1))]);
        }
    }
    let dag = Dag::new(&Graph::new(36, Node(0), Node(5), edges).unwrap(), &[], Entries::PerEdge);
    let weights: Vec<f64> = (0..60).map(|e| if e % 2 == 0 { [2.0, 3.0, 1.0, 2.0, 1.0, 1.0][e / 2 % 6] } else { 1.0 }).collect();
    let model = CodingModel::from_weights(&dag, &weights).unwrap();
    let letters = |word: [u32; 5]| -> Vec<DagEdgeId> {
        (0u32..).zip(word).flat_map(|(place, letter)| [12 * place + 2 * letter, 12 * place + 2 * letter + 1].map(DagEdgeId)).collect()
    };
    let word = letters([1, 0, 2, 2, 5]);
    assert_eq!(model.probability(&word), ratio(3, 50_000));
    assert_eq!(*model.size(), BigInt::from(100_000));
    assert_eq!(model.encode(&word), Some(23_354.into()));
    assert_eq!(model.decode(&23_354.into()), Some(word));
    let words = (0..6u32.pow(5)).map(|w| letters([0, 1, 2, 3, 4].map(|i| w / 6u32.pow(i) % 6)));
    let numbers: BTreeSet<BigInt> = words.map(|w| model.encode(&w).unwrap()).collect();
    assert_eq!(numbers.len(), 7776);
}

fn enclosures_overlap(a: &trodden_coding::Enclosure, b: &trodden_coding::Enclosure) -> bool {
    a.low <= b.high && b.low <= a.high
}

/// Returns the graph of figure 4.2, whose edges are in an order that gives the published numbers.
fn figure_4_2() -> Dag {
    let [s, t, a, b, c, d] = [0, 1, 2, 3, 4, 5].map(Node);
    let edges = vec![(s, a), (s, b), (a, c), (a, b), (b, c), (c, d), (c, t), (d, t)];
    Dag::new(&Graph::new(6, s, t, edges).unwrap(), &[], Entries::PerEdge)
}

fn probabilities_by_node(model: &CodingModel) -> Vec<(u32, Vec<BigRational>)> {
    model.contexts().map(|c| (c.node, c.choices.iter().map(|(_, (low, high))| high - low).collect())).collect()
}

#[test]
fn ball_larus_model_reproduces_table_4_2_and_example_4_2_2() {
    let dag = figure_4_2();
    let model = CodingModel::ball_larus(&dag);
    let of = |node: u32| probabilities_by_node(&model).into_iter().find(|c| c.0 == node).unwrap().1;
    assert_eq!(of(0), [ratio(2, 3), ratio(1, 3)]);
    assert_eq!(of(2), [ratio(1, 2), ratio(1, 2)]);
    assert_eq!((of(3), of(4)), (vec![ratio(1, 1)], vec![ratio(1, 2), ratio(1, 2)]));
    let sbcdt = [1, 4, 5, 7].map(DagEdgeId);
    assert_eq!(model.encode(&sbcdt), Some(4.into()));
}

#[test]
fn preferential_model_reproduces_numbers_of_example_4_2_3() {
    let dag = figure_4_2();
    let paths = [vec![0, 2, 5, 7], vec![0, 2, 6], vec![1, 4, 6]].map(|p| p.into_iter().map(DagEdgeId).collect::<Vec<_>>());
    let ids = preferential(&dag, &paths, 0).unwrap();
    let model = CodingModel::preferential(&dag, &ids.values, &paths).unwrap();
    assert_eq!(paths.each_ref().map(|p| model.encode(p).unwrap()), [0, 1, 2].map(BigInt::from));
    // Both edges after `sac` are equally likely. With the printed probabilities of 1/3 and 2/3, `sact` would have the number of `sacdt`.
    let sac = model.contexts().find(|c| c.prefix == [DagEdgeId(0), DagEdgeId(2)]).unwrap();
    let expected = [(ratio(0, 1), ratio(1, 2)), (ratio(1, 2), ratio(1, 1))];
    assert_eq!(sac.choices.into_iter().map(|c| c.1).collect::<Vec<_>>(), expected);
    assert_eq!(model.encode(&[1, 4, 5, 7].map(DagEdgeId)), None, "an uninteresting path has no number");
}

#[test]
fn entropy_of_measured_model_matches_closed_form() {
    let dag = figure_4_2();
    let weights = [3.0, 1.0, 2.0, 1.0, 2.0, 1.0, 3.0, 1.0];
    let model = CodingModel::from_weights(&dag, &weights).unwrap();
    // Probabilities at s are 3/4 and 1/4. At a, which is reached with probability 3/4, they are 2/3 and 1/3. At c, which is always reached,
    // they are 1/4 and 3/4.
    let h = |p: f64| -(p * p.log2() + (1.0 - p) * (1.0 - p).log2());
    let expected = h(0.75) + 0.75 * h(1.0 / 3.0) + h(0.25);
    let found = model.entropy(60);
    let approximate = trodden_coding::nearest_f64;
    assert!(approximate(&found.low) <= expected + 1e-12 && approximate(&found.high) >= expected - 1e-12, "{expected}: {found:?}");
    assert!(approximate(&(&found.high - &found.low)) < 1e-15);
    assert!(CodingModel::from_weights(&dag, &[0.0; 8]).is_err());
}
