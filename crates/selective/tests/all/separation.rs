//! Separation of interesting paths with one register: figure 3.5 of the thesis, and random graphs compared with all values of a small
//! range.

use trodden_flow::dag::Entries;
use trodden_flow::interesting::UninterestingPathAliases;
use trodden_flow::{Dag, DagEdgeId, Graph, Node, Numbering, NumberingScheme};
use trodden_selective::separation::{ThresholdSeparation, decide_separation};
use trodden_selective::verify::{VerifyBudget, verify};
use trodden_selective::{InterestingSet, NumberOptions, number, preferential};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, graph};

/// Figure 3.5: nodes s, a, b, c, d, e, t; the interesting paths are sacet and sbcdt.
fn figure_3_5() -> (Dag, Numbering, Vec<Vec<DagEdgeId>>) {
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)].map(|(a, b)| (Node(a), Node(b)));
    let dag = Dag::new(&Graph::new(7, Node(0), Node(6), edges.to_vec()).unwrap(), &[], Entries::PerEdge);
    let all = Numbering::ball_larus(&dag).unwrap();
    let paths = [[0, 2, 5, 7], [1, 3, 4, 6]].map(|p| p.map(DagEdgeId).to_vec()).to_vec();
    (dag, all, paths)
}

fn count_approximate_aliases(dag: &Dag, set: &InterestingSet, weights: &[f64]) -> u128 {
    let labelling = number(NumberingScheme::Approximate, dag, weights, set, &NumberOptions::default()).unwrap();
    let verdict = verify(dag, set, &labelling, &VerifyBudget::default());
    assert!(verdict.is_not_refuted(false));
    let UninterestingPathAliases::Exact(aliases) = verdict.aliases else { panic!("small graphs are enumerated") };
    aliases
}

#[test]
fn figure_3_5_has_no_threshold_but_numbers_without_aliases() {
    let (dag, all, paths) = figure_3_5();
    let set = InterestingSet::from_paths(&dag, &all, &paths).unwrap();
    let ThresholdSeparation::Inseparable { interesting, others } = decide_separation(&dag, &all, &set).unwrap() else {
        panic!("lemma 3.3.1")
    };
    assert_eq!(interesting, paths.into_iter().map(|p| (p, 1)).collect::<Vec<_>>());
    assert_eq!(others.len(), 2);
    assert_eq!(count_approximate_aliases(&dag, &set, &[1.0; 8]), 0);
}

fn contain_edges_equally_often(dag: &Dag, a: &[(Vec<DagEdgeId>, i64)], b: &[(Vec<DagEdgeId>, i64)]) -> bool {
    let taken = |paths: &[(Vec<DagEdgeId>, i64)]| {
        let mut count = vec![0; dag.edges().len()];
        paths.iter().for_each(|(path, weight)| path.iter().for_each(|e| count[e.index()] += weight));
        count
    };
    a.iter().chain(b).all(|(_, weight)| *weight > 0) && !a.is_empty() && taken(a) == taken(b)
}

#[test]
fn answers_are_proven_by_values_or_by_paths() {
    let (mut separated, mut never) = (0, 0);
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let dag = Dag::new(&graph(&mut random, 8, 14, CycleKind::Some), &[], Entries::PerEdge);
        let all = Numbering::ball_larus(&dag).unwrap();
        if !(2..=60).contains(&all.paths()) {
            continue;
        }
        let ids: Vec<u64> = (0..all.paths()).filter(|_| random.chance(30)).collect();
        if ids.is_empty() {
            continue;
        }
        let paths: Vec<Vec<DagEdgeId>> = ids.iter().map(|id| all.path(&dag, *id).unwrap()).collect();
        let set = InterestingSet::from_paths(&dag, &all, &paths).unwrap();
        match decide_separation(&dag, &all, &set).unwrap() {
            ThresholdSeparation::Separated(values) => {
                let mut seen = std::collections::HashSet::new();
                for id in 0..all.paths() {
                    let sum: i64 = all.path(&dag, id).unwrap().iter().map(|e| values[e.index()]).sum();
                    assert_eq!(sum < 0, ids.contains(&id), "seed {seed}");
                    assert!(seen.insert(sum), "seed {seed}");
                }
                separated += 1;
            }
            ThresholdSeparation::Inseparable { interesting, others } => {
                assert!(contain_edges_equally_often(&dag, &interesting, &others), "seed {seed}");
                assert!(
                    interesting.iter().all(|(p, _)| paths.contains(p)) && others.iter().all(|(p, _)| !paths.contains(p)),
                    "seed {seed}"
                );
                never += 1;
            }
            ThresholdSeparation::Unknown => panic!("seed {seed}: it is small"),
        }
    }
    assert!(separated > 200 && never > 100, "{separated} separated, {never} not");
}

#[test]
fn approximate_numbers_have_few_aliases() {
    let (mut preferential_aliases, mut found_aliases, mut optimal, mut seen) = (0, 0, 0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let dag = Dag::new(&graph(&mut random, 6, 9, CycleKind::None), &[], Entries::PerEdge);
        let all = Numbering::ball_larus(&dag).unwrap();
        if !(4..=16).contains(&all.paths()) {
            continue;
        }
        let chosen = [random.below(all.paths()), random.below(all.paths())];
        if chosen[0] == chosen[1] {
            continue;
        }
        let paths: Vec<Vec<DagEdgeId>> = chosen.iter().map(|id| all.path(&dag, *id).unwrap()).collect();
        let set = InterestingSet::from_paths(&dag, &all, &paths).unwrap();
        let by = |values: &[i64]| {
            let sum = |id: u64| all.path(&dag, id).unwrap().iter().map(|e| values[e.index()]).sum::<i64>();
            let own = chosen.map(sum);
            (own[0] != own[1] && own[0].abs_diff(own[1]) < 8)
                .then(|| (0..all.paths()).filter(|id| !chosen.contains(id) && own.contains(&sum(*id))).count() as u128)
        };
        let first = by(&preferential(&dag, &paths, 16).unwrap().values).unwrap();
        let found = count_approximate_aliases(&dag, &set, &vec![1.0; dag.edges().len()]);
        assert!(found <= first, "seed {seed}: {found} aliases, {first} of preferential numbering");
        // All assignments of values from -1 to 1 to at most ten edges.
        let count = dag.edges().len().min(10) as u32;
        let value = |n: u32, e: u32| i64::from(if e < count { n / 3u32.pow(e) % 3 } else { 1 }) - 1;
        let small = (0..3u32.pow(count)).map(|n| (0..dag.edges().len() as u32).map(|e| value(n, e)).collect::<Vec<_>>());
        let least = small.filter_map(|values| by(&values)).min().unwrap_or(first);
        seen += 1;
        optimal += usize::from(found <= least);
        (preferential_aliases, found_aliases) = (preferential_aliases + first, found_aliases + found);
    }
    assert!(seen > 50 && optimal * 10 >= seen * 9, "{optimal} of {seen} have no more than the fewest with values from -1 to 1");
    assert!(found_aliases * 4 < preferential_aliases, "{found_aliases} aliases, {preferential_aliases} of preferential numbering");
}
