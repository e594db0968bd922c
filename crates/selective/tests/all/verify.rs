//! Tests of the verifier of labellings: against brute force, on correct and on faulty labellings.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::interesting::UninterestingPathAliases;
use trodden_flow::{Dag, DagEdgeId, DagEdgeSet, Graph, Node, Numbering, NumberingScheme};
use trodden_selective::InterestingSet;
use trodden_selective::verify::{VerifyBudget, VerifyFinding, VerifyMethod, verify};
use trodden_selective::{Budget, NumberOptions, PathClass, number};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, graph};

const BUDGET_WITHOUT_ENUMERATION: VerifyBudget = VerifyBudget { paths: 0, states: 1_000_000, samples: 1_000 };

fn random_case(random: &mut Random, nodes: u32, edges: u32, most: u64) -> (Dag, Numbering, InterestingSet) {
    loop {
        let dag = Dag::new(&graph(random, nodes, edges, CycleKind::None), &[], Entries::PerEdge);
        let Ok(all) = Numbering::ball_larus(&dag) else { continue };
        if !(2..=most).contains(&all.paths()) {
            continue;
        }
        if random.chance(30) {
            let marked = DagEdgeSet::from_fn(dag.edges().len(), |_| random.chance(80));
            if let Ok(set) = InterestingSet::from_edges(&dag, &marked) {
                return (dag, all, set);
            }
        }
        let ids: Vec<u64> = (0..1 + random.below(20)).map(|_| random.below(all.paths())).collect();
        let set = InterestingSet::from_ids(&dag, &all, &ids).unwrap();
        return (dag, all, set);
    }
}

#[test]
fn search_enumeration_and_brute_force_agree() {
    let (mut unsound, mut clean) = (0, 0);
    for seed in 0..6_000 {
        let mut random = Random::new(seed);
        let (dag, all, set) = random_case(&mut random, 9, 20, 300);
        let scheme = random.pick(&NumberingScheme::ALL);
        let weights: Vec<f64> = dag.edge_ids().map(|_| random.below(50) as f64).collect();
        // Without improvement steps, approximate numbers have aliases.
        let budget = Budget { steps: if random.chance(70) { 0 } else { 1 << 20 }, ..Budget::default() };
        let labelling = number(scheme, &dag, &weights, &set, &NumberOptions { budget, ..NumberOptions::default() }).unwrap();
        let region = |p: &[DagEdgeId], ids: &BTreeSet<u64>| match scheme {
            NumberingScheme::BallLarus => true,
            _ if scheme.selects_edges() => p.iter().all(|e| set.has(*e)),
            _ => ids.contains(&all.id(p)),
        };
        let ids: BTreeSet<u64> = set.paths(&dag).unwrap().iter().map(|p| all.id(p)).collect();
        let paths: Vec<Vec<DagEdgeId>> = (0..all.paths()).map(|id| all.path(&dag, id).unwrap()).collect();
        let mut sums: BTreeMap<[i64; 2], (u64, u64)> = BTreeMap::new();
        for path in &paths {
            let counts = sums.entry(labelling.register_values(path)).or_default();
            if region(path, &ids) { counts.0 += 1 } else { counts.1 += 1 }
        }
        let aliases: u64 = sums.values().filter(|c| c.0 > 0).map(|c| c.1).sum();
        let unique = sums.values().all(|c| c.0 <= 1);
        for budget in [VerifyBudget::default(), BUDGET_WITHOUT_ENUMERATION] {
            let verdict = verify(&dag, &set, &labelling, &budget);
            assert_eq!(verdict.method, if budget.paths == 0 { VerifyMethod::Searched } else { VerifyMethod::Enumerated }, "seed {seed}");
            assert_eq!(verdict.uniqueness == VerifyFinding::Holds, unique, "seed {seed}, {}: {verdict:?}", scheme.name());
            assert_eq!(verdict.validity == VerifyFinding::Holds, aliases == 0, "seed {seed}, {}: {verdict:?}", scheme.name());
            assert_eq!(verdict.aliases, UninterestingPathAliases::Exact(aliases.into()), "seed {seed}, {}", scheme.name());
            assert_eq!(verdict.compactness, VerifyFinding::Holds, "seed {seed}, {}", scheme.name());
            if let (VerifyFinding::Fails(first, Some(second)), true) = (&verdict.validity, budget.paths == 0) {
                assert_eq!(labelling.register_values(first), labelling.register_values(second), "seed {seed}");
                assert!(region(first, &ids) && !region(second, &ids), "seed {seed}");
            }
        }
        if aliases > 0 { unsound += 1 } else { clean += 1 }
    }
    assert!(unsound >= 300 && clean >= 1_000, "{unsound} unsound, {clean} clean");
}

/// Returns a graph in which each node has an edge to the next node, and an edge that skips one or two nodes.
fn chain(random: &mut Random, nodes: u32) -> Dag {
    let skip = |n: u32, random: &mut Random| Node((n + 2 + random.below(2) as u32).min(nodes - 1));
    let edges = (0..nodes - 1).flat_map(|n| [(Node(n), Node(n + 1)), (Node(n), skip(n, random))]).collect();
    Dag::new(&Graph::new(nodes, Node(0), Node(nodes - 1), edges).unwrap(), &[], Entries::PerEdge)
}

#[test]
fn graphs_with_billions_of_paths_are_verified_exactly() {
    let mut searched = BTreeMap::<&str, u32>::new();
    for seed in 0..40 {
        let mut random = Random::new(seed ^ 0xb16);
        let dag = chain(&mut random, 70);
        let all = Numbering::ball_larus(&dag).unwrap();
        assert!(all.paths() > 1 << 30, "seed {seed}: {} paths", all.paths());
        let ids: Vec<u64> = (0..1 + random.below(20)).map(|_| random.below(all.paths())).collect();
        let set = InterestingSet::from_ids(&dag, &all, &ids).unwrap();
        let weights: Vec<f64> = dag.edge_ids().map(|_| random.below(50) as f64).collect();
        for scheme in [NumberingScheme::BallLarus, NumberingScheme::Pspp, NumberingScheme::Ppp, NumberingScheme::KnownTable] {
            let Ok(labelling) = number(scheme, &dag, &weights, &set, &NumberOptions::default()) else { continue };
            let verdict = verify(&dag, &set, &labelling, &BUDGET_WITHOUT_ENUMERATION);
            assert!(verdict.is_not_refuted(true), "seed {seed}, {}: {verdict:?}", scheme.name());
            *searched.entry(scheme.name()).or_default() += u32::from(verdict.is_proof());
        }
    }
    println!("proven by search: {searched:?}");
    assert!(searched["ball-larus"] >= 20 && searched["ppp"] >= 20 && searched["known-table"] >= 20, "{searched:?}");
}

#[test]
fn paths_beyond_the_budget_are_sampled_and_the_verdict_mentions_this() {
    let diamonds: Vec<(Node, Node)> = (0..40).flat_map(|d| [(Node(d), Node(d + 1)); 2]).collect();
    let dag = Dag::new(&Graph::new(41, Node(0), Node(40), diamonds).unwrap(), &[], Entries::PerEdge);
    let all = Numbering::ball_larus(&dag).unwrap();
    let set = InterestingSet::from_ids(&dag, &all, &[5, 1 << 20, 1 << 39]).unwrap();
    let labelling = number(NumberingScheme::Approximate, &dag, &[1.0; 80], &set, &NumberOptions::default()).unwrap();
    let little = VerifyBudget { paths: 0, states: 3, samples: 2_000 };
    let verdict = verify(&dag, &set, &labelling, &little);
    assert_eq!(verdict.method, VerifyMethod::Sampled(2_000));
    assert!(!verdict.is_proof() && matches!(verdict.validity, VerifyFinding::Fails(..)), "{verdict:?}");
    // Half of the samples are drawn from all paths, and most of these are recognised as an interesting path.
    assert!(
        matches!(verdict.aliases, UninterestingPathAliases::Sampled { aliases, of } if of >= 990 && aliases > 0),
        "{:?}",
        verdict.aliases
    );
    // With a larger budget, the aliases are counted exactly, by sums.
    let verdict = verify(&dag, &set, &labelling, &BUDGET_WITHOUT_ENUMERATION);
    let UninterestingPathAliases::Exact(aliases) = verdict.aliases else { panic!("{verdict:?}") };
    assert!(verdict.is_proof() && aliases > 1 << 30, "{aliases}");
    let ppp = number(NumberingScheme::Ppp, &dag, &[1.0; 80], &set, &NumberOptions::default()).unwrap();
    assert_eq!(verify(&dag, &set, &ppp, &little).validity, VerifyFinding::NotRefuted);
    assert!(
        matches!(ppp.classify(&dag, [i64::MIN, 0]), PathClass::Unknown) && matches!(ppp.classify(&dag, [i64::MAX, 0]), PathClass::Unknown)
    );
}
