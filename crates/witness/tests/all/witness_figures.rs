//! Distributions for figures 4, 6 and 7 of the paper, and distributions within limits, compared with a brute-force search.

use trodden_flow::{Graph, Node};
use trodden_testkit::Random;
use trodden_testkit::graphs::{self, CycleKind};
use trodden_testkit::programs::witnesses_of;
use trodden_witness::distribution::plan;
use trodden_witness::{
    Distribution, DistributionOptions, DistributionStrategy, Lookahead, PlanError, PlannedDistribution, Weights, Witness,
    WitnessFunctionId, WitnessJobOrder, WitnessKind, WitnessProgram, check_pairwise, check_published_theorems,
};

fn program(nodes: u32, edges: &[(u32, u32)]) -> WitnessProgram {
    let edges = edges.iter().map(|&(a, b)| (Node(a), Node(b))).collect();
    WitnessProgram::from_graph(Graph::new(nodes, Node(0), Node(nodes - 1), edges).unwrap()).unwrap()
}

fn nodes(program: &WitnessProgram, profiles: &[&[u32]]) -> Distribution {
    let profiles = profiles.iter().map(|p| p.iter().map(|n| Witness(*n)).collect()).collect();
    Distribution::new(program, WitnessKind::Nodes, profiles).unwrap()
}

fn options(profiles: usize, strategy: DistributionStrategy) -> DistributionOptions {
    let (order, lookahead) = (WitnessJobOrder::Given, Lookahead::NextSymbol);
    DistributionOptions { profiles, strategy, order, limit: None, machines: None, lookahead }
}

/// Figure 6(a): a loop over three diamonds. The entry is 0, the exit 12; b2 to b11 are 2 to 11, and node 1 precedes b2.
const THREE_DIAMONDS: &[(u32, u32)] = &[
    (0, 1),
    (1, 2),
    (2, 3),
    (2, 4),
    (3, 5),
    (4, 5),
    (5, 6),
    (5, 7),
    (6, 8),
    (7, 8),
    (8, 9),
    (8, 10),
    (9, 11),
    (10, 11),
    (11, 2),
    (11, 12),
];

/// Figure 4: a loop over b1, in which b5 leads to b11 over b6, or over b7 and a diamond that ends in b10. The entry is 0, the exit 12.
const FIGURE_4: &[(u32, u32)] = &[
    (0, 1),
    (1, 2),
    (1, 12),
    (2, 3),
    (2, 4),
    (3, 5),
    (4, 5),
    (5, 6),
    (5, 7),
    (7, 8),
    (7, 9),
    (8, 10),
    (9, 10),
    (10, 11),
    (6, 11),
    (11, 1),
];

fn planned(program: &WitnessProgram, kind: WitnessKind, options: &DistributionOptions) -> PlannedDistribution {
    let planned = plan(program, kind, &Weights::estimate(program), options).unwrap();
    assert!(planned.check.is_realizable());
    planned
}

fn max_cost(planned: &PlannedDistribution) -> f64 {
    planned.costs.iter().copied().fold(0.0, f64::max)
}

#[test]
fn figure_6_costs_no_more_than_in_the_paper() {
    let program = program(13, THREE_DIAMONDS);
    let weights = Weights::estimate(&program);
    let of = |profile: &[u32]| weights.sum(WitnessKind::Nodes, &profile.iter().map(|n| Witness(*n)).collect::<Vec<_>>());
    // The paper's distributions are {b3, b4}, {b6, b7}, {b9, b10} for three machines, and {b3, b4, b6}, {b9, b10} for two.
    let papers = [(3, of(&[3, 4])), (2, of(&[3, 4, 6]))];
    for (machines, paper) in papers {
        for strategy in [DistributionStrategy::Fine, DistributionStrategy::Weighted] {
            let planned = planned(&program, WitnessKind::Nodes, &options(machines, strategy));
            let found = max_cost(&planned);
            assert!(found <= paper * 1.000001, "{strategy:?} on {machines}: {found}, the paper's {paper}");
        }
    }
}

#[test]
fn figure_7_has_profiles_of_two_and_three_edges() {
    let program = program(13, THREE_DIAMONDS);
    let planned = planned(&program, WitnessKind::Edges, &options(2, DistributionStrategy::Fine));
    let mut sizes: Vec<usize> = planned.distribution.profiles.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 3]);
}

#[test]
fn figures_of_the_paper_satisfy_both_theorems() {
    let figure_4 = program(13, FIGURE_4);
    let figure_9 = program(7, &[(0, 1), (1, 2), (1, 3), (1, 4), (1, 6), (2, 5), (3, 5), (4, 5), (5, 1)]);
    let distributions =
        [(&figure_4, nodes(&figure_4, &[&[3, 4], &[6, 7], &[8, 9]])), (&figure_9, nodes(&figure_9, &[&[2, 4], &[2, 3], &[3, 4]]))];
    for (program, distribution) in distributions {
        let check = check_published_theorems(program, &distribution).unwrap();
        assert!(check.is_realizable(), "{check:?}");
    }
    // Runs that reach the exit without a witness on either path are not distinguished.
    let open = program(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]);
    assert!(!check_published_theorems(&open, &nodes(&open, &[&[0], &[3]])).unwrap().is_realizable());
}

#[test]
fn distribution_with_two_witnesses_per_profile_is_found() {
    for edges in [THREE_DIAMONDS, FIGURE_4] {
        let program = program(13, edges);
        for strategy in [DistributionStrategy::Fine, DistributionStrategy::Grouped, DistributionStrategy::Weighted] {
            for order in [WitnessJobOrder::Given, WitnessJobOrder::LongestFirst] {
                let options = DistributionOptions { limit: Some(2), order, ..options(3, strategy) };
                let profiles = planned(&program, WitnessKind::Nodes, &options).distribution.profiles;
                assert!(profiles.iter().all(|p| p.len() <= 2), "{strategy:?} {order:?} {profiles:?}");
                assert!(profiles.len() <= 4, "{strategy:?} {order:?} {profiles:?}");
            }
        }
    }
}

/// Returns true if every reachable node can reach the exit.
fn can_always_reach_exit(program: &WitnessProgram) -> bool {
    let graph = &program.function(WitnessFunctionId(0)).graph;
    let closure = |from: Node, step: &dyn Fn(Node) -> Vec<Node>| {
        let (mut seen, mut work) = (vec![false; graph.node_count()], vec![from]);
        while let Some(node) = work.pop() {
            if !std::mem::replace(&mut seen[node.index()], true) {
                work.extend(step(node));
            }
        }
        seen
    };
    let reached = closure(graph.entry(), &|n| graph.out(n).iter().map(|e| graph.to(*e)).collect());
    let ending = closure(graph.exit(), &|n| graph.incoming(n).iter().map(|e| graph.from(*e)).collect());
    reached.iter().zip(&ending).all(|(reached, ending)| *ending || !*reached)
}

/// A distribution within a limit exists if each pair of successors that can be distinguished can be distinguished by that many
/// witnesses.
#[test]
fn limit_is_met_whenever_possible() {
    let (mut met, mut rejected) = (0, 0);
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let graph = graphs::graph(&mut random, 7, 11, CycleKind::Some);
        // If no end can be reached, the run is ended from outside. The check of complete runs does not consider this.
        let Some(program) = WitnessProgram::from_graph(graph).ok().filter(can_always_reach_exit) else { continue };
        let all = witnesses_of(&program, WitnessKind::Nodes, WitnessFunctionId(0));
        let violated = |set: &[Witness]| {
            let distribution = Distribution::new(&program, WitnessKind::Nodes, vec![set.to_vec()]).unwrap();
            check_pairwise(&program, &distribution).violations.into_iter().map(|v| (v.state, v.successors)).collect::<Vec<_>>()
        };
        let never = violated(&all);
        for limit in 1..4usize {
            let mut open = violated(&[]);
            open.retain(|pair| !never.contains(pair));
            for set in (0u32..1 << all.len()).filter(|s| s.count_ones() as usize <= limit) {
                let set: Vec<Witness> = (0..all.len()).filter(|i| set >> i & 1 == 1).map(|i| all[i]).collect();
                let still = violated(&set);
                open.retain(|pair| still.contains(pair));
            }
            let options = DistributionOptions { limit: Some(limit), ..options(2, DistributionStrategy::Fine) };
            let found = plan(&program, WitnessKind::Nodes, &Weights::estimate(&program), &options);
            match found {
                Ok(planned) => {
                    assert!(open.is_empty(), "seed {seed}, {limit}: {open:?} are not distinguished");
                    assert!(planned.distribution.profiles.iter().all(|p| p.len() <= limit), "seed {seed}");
                    assert!(planned.check.violations.len() <= never.len(), "seed {seed}");
                    met += 1;
                }
                Err(PlanError::LimitTooSmall { needs, .. }) => {
                    assert!(!open.is_empty() && needs > limit, "seed {seed}: {limit} suffice");
                    rejected += 1;
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    }
    assert!(met > 200 && rejected > 20, "{met} met, {rejected} rejected");
}

#[test]
fn weighted_strategy_is_never_more_expensive_than_published_ones() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let Ok(program) = WitnessProgram::from_graph(graphs::graph(&mut random, 10, 17, CycleKind::Some)) else { continue };
        for (profiles, machines) in [(2, 1), (3, 1), (4, 2), (3, 3)] {
            let cost = |strategy| {
                let options = DistributionOptions { machines: Some(machines), ..options(profiles, strategy) };
                let planned = plan(&program, WitnessKind::Nodes, &Weights::estimate(&program), &options).unwrap();
                (planned.repaired == 0).then(|| max_cost(&planned))
            };
            let Some(weighted) = cost(DistributionStrategy::Weighted) else { continue };
            for strategy in [DistributionStrategy::Fine, DistributionStrategy::Function, DistributionStrategy::Grouped] {
                let Some(published) = cost(strategy) else { continue };
                assert!(weighted <= published * 1.000001, "seed {seed}, {profiles} on {machines}: {weighted}, {strategy:?} {published}");
            }
        }
    }
}
