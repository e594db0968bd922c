//! Compares the pairwise condition and reconstruction, on random graphs and small random programs, with all their short executions.

use std::collections::HashMap;
use trodden_testkit::Random;
use trodden_testkit::graphs::{self, CycleKind};
use trodden_testkit::programs::{self, Execution, ProgramFeatures};
use trodden_witness::ambiguous;
use trodden_witness::condition::{self, check_pairwise};
use trodden_witness::distribution;
use trodden_witness::pushdown::Pushdown;
use trodden_witness::structure::PushdownStructure;
use trodden_witness::{
    Distribution, DistributionOptions, DistributionStrategy, Lookahead, Reconstruction, ReconstructionOutcome, TraceEnding, Weights,
    Witness, WitnessJobOrder, WitnessKind, WitnessProgram, WitnessSite,
};

fn witness(program: &WitnessProgram, kind: WitnessKind, site: &WitnessSite) -> Option<Witness> {
    match (kind, *site) {
        (WitnessKind::Nodes, WitnessSite::Node(function, node)) => Some(program.node_witness(function, node)),
        (WitnessKind::Edges, WitnessSite::Edge(function, edge)) => Some(program.edge_witness(function, edge)),
        _ => None,
    }
}

fn traces(program: &WitnessProgram, distribution: &Distribution, execution: &Execution) -> Vec<Vec<Witness>> {
    let all: Vec<Witness> = execution.sites.iter().filter_map(|s| witness(program, distribution.kind, s)).collect();
    distribution.profiles.iter().map(|p| all.iter().copied().filter(|w| p.binary_search(w).is_ok()).collect()).collect()
}

fn random_distribution(random: &mut Random, program: &WitnessProgram) -> Distribution {
    let kind = random.pick(&[WitnessKind::Nodes, WitnessKind::Edges]);
    let percent = random.pick(&[30, 50, 70, 90, 95, 100]);
    let all: Vec<Witness> = program.function_ids().flat_map(|f| programs::witnesses_of(program, kind, f)).collect();
    let profiles = 1 + random.below(3);
    let profile = |random: &mut Random| all.iter().copied().filter(|_| random.chance(percent)).collect();
    let profiles = (0..profiles).map(|_| profile(random)).collect();
    Distribution::new(program, kind, profiles).unwrap()
}

/// Returns true if the condition holds. In this case, all executions must be reconstructed exactly.
fn check_reconstruction(program: &WitnessProgram, distribution: &Distribution, executions: &[Execution]) -> bool {
    if !check_pairwise(program, distribution).is_realizable() {
        return false;
    }
    let reconstruction = Reconstruction::new(program, distribution);
    for execution in executions {
        let traces = traces(program, distribution, execution);
        let mut walk = reconstruction.start(traces.iter().map(|t| t.iter().copied()).collect(), TraceEnding::Complete).unwrap();
        let blocks = programs::blocks_of(&mut walk).unwrap_or_else(|e| panic!("{e}: {distribution:?} {program:?} {execution:?}"));
        assert_eq!(blocks, execution.blocks, "{distribution:?} {program:?}");
        assert!(matches!(walk.outcome(), Some(ReconstructionOutcome::Complete(_))));
        check_truncated_traces(&reconstruction, &traces, execution);
    }
    true
}

/// Checks that truncated traces yield a prefix of the execution.
fn check_truncated_traces(reconstruction: &Reconstruction, traces: &[Vec<Witness>], execution: &Execution) {
    for part in [0, 1, 2] {
        let short = traces.iter().enumerate().map(|(i, t)| t[..t.len() * ((part + i) % 3) / 3].iter().copied()).collect();
        let mut walk = reconstruction.start(short, TraceEnding::Truncated).unwrap();
        let blocks = programs::blocks_of(&mut walk).unwrap();
        assert!(execution.blocks.starts_with(&blocks), "{blocks:?} {execution:?}");
    }
}

#[test]
fn graph_executions_are_reconstructed_if_the_condition_holds() {
    let mut random = Random::new(27);
    let mut count = 0;
    for _ in 0..4000 {
        let graph = graphs::graph(&mut random, 6, 9, CycleKind::Some);
        let program = WitnessProgram::from_graph(graph).unwrap();
        let distribution = random_distribution(&mut random, &program);
        let executions = programs::executions(&program, 12, 200);
        count += usize::from(executions.len() > 1 && check_reconstruction(&program, &distribution, &executions));
    }
    assert!(count > 500, "{count}");
}

#[test]
fn program_executions_are_reconstructed_if_the_condition_holds() {
    for features in [ProgramFeatures::Calls, ProgramFeatures::All] {
        let mut random = Random::new(28);
        let mut count = 0;
        for _ in 0..6000 {
            let program = programs::program(&mut random, 3, 4, 5, features);
            let distribution = random_distribution(&mut random, &program);
            let executions = programs::executions(&program, 24, 100);
            count += usize::from(executions.len() > 1 && check_reconstruction(&program, &distribution, &executions));
        }
        assert!(count > 90, "{features:?}: {count}");
    }
}

/// Numbers of distributions that violate the condition, of those explained by two executions, and of those without ambiguous short
/// executions.
#[derive(Default, Debug)]
struct Counts {
    failed: usize,
    shown: usize,
    unambiguous: usize,
}

/// Checks that the two executions found for a violation are executions, differ, and leave the same traces.
fn check_violations(program: &WitnessProgram, distribution: &Distribution, executions: &[Execution], counts: &mut Counts) {
    let check = check_pairwise(program, distribution);
    if check.is_realizable() {
        return;
    }
    let structure = PushdownStructure::new(Pushdown::new(program, distribution.kind));
    let members = condition::members(program, distribution);
    let found = ambiguous::find_ambiguous_executions(&structure, &members, &check.violations, 20_000);
    // Several executions can have the same blocks, because of parallel edges or calls of unknown code.
    let mut by_blocks: HashMap<_, Vec<Vec<Vec<Witness>>>> = HashMap::new();
    let mut by_traces: HashMap<Vec<Vec<Witness>>, Vec<&Execution>> = HashMap::new();
    for execution in executions {
        let traces = traces(program, distribution, execution);
        by_blocks.entry(&execution.blocks).or_default().push(traces.clone());
        by_traces.entry(traces).or_default().push(execution);
    }
    let longest = executions.iter().map(|e| e.blocks.len()).min().unwrap_or(0);
    for two in found.iter().flatten() {
        assert_ne!(two[0], two[1]);
        if two.iter().all(|blocks| by_blocks.contains_key(blocks)) {
            assert!(by_blocks[&two[0]].iter().any(|t| by_blocks[&two[1]].contains(t)), "{two:?} {distribution:?} {program:?}");
        } else {
            assert!(two.iter().any(|blocks| blocks.len() >= longest));
        }
    }
    counts.failed += 1;
    counts.shown += usize::from(found.iter().any(Option::is_some));
    let ambiguous = by_traces.values().any(|same| same.iter().any(|e| e.blocks != same[0].blocks));
    counts.unambiguous += usize::from(!ambiguous);
    assert!(!ambiguous || program.functions().len() > 1 || found.iter().any(Option::is_some), "{distribution:?} {program:?}");
}

#[test]
fn executions_found_for_a_violation_are_ambiguous() {
    let mut random = Random::new(29);
    let mut counts = Counts::default();
    for _ in 0..1500 {
        let program = WitnessProgram::from_graph(graphs::graph(&mut random, 6, 9, CycleKind::Some)).unwrap();
        let distribution = random_distribution(&mut random, &program);
        check_violations(&program, &distribution, &programs::executions(&program, 12, 200), &mut counts);
    }
    assert!(counts.shown * 10 > counts.failed * 6, "{counts:?}");
    for features in [ProgramFeatures::Calls, ProgramFeatures::All] {
        let mut counts = Counts::default();
        for _ in 0..600 {
            let program = programs::program(&mut random, 3, 4, 5, features);
            let distribution = random_distribution(&mut random, &program);
            check_violations(&program, &distribution, &programs::executions(&program, 16, 60), &mut counts);
        }
        assert!(counts.shown > 5, "{counts:?}");
    }
}

/// Checks that every strategy finds a realizable distribution if all witnesses in one profile are realizable.
fn check_strategies(random: &mut Random, program: &WitnessProgram, executions: &[Execution]) {
    let kind = random.pick(&[WitnessKind::Nodes, WitnessKind::Edges]);
    let all = program.function_ids().flat_map(|f| programs::witnesses_of(program, kind, f)).collect();
    let all = Distribution::new(program, kind, vec![all]).unwrap();
    let structure = PushdownStructure::new(Pushdown::new(program, kind));
    let members = condition::members(program, &all);
    let weights = Weights::estimate(program);
    for strategy in
        [DistributionStrategy::Fine, DistributionStrategy::Function, DistributionStrategy::Grouped, DistributionStrategy::Weighted]
    {
        let profiles = 1 + random.index(3);
        let limit = random.pick(&[None, None, Some(4), Some(8)]);
        let machines = random.pick(&[None, Some(2)]);
        let order = random.pick(&[WitnessJobOrder::Given, WitnessJobOrder::LongestFirst]);
        let lookahead = random.pick(&[Lookahead::NextSymbol, Lookahead::OwnComponent]);
        let options = DistributionOptions { profiles, strategy, order, limit, machines, lookahead };
        let Ok(planned) = distribution::plan(program, kind, &weights, &options) else { continue };
        assert!(planned.distribution.profiles.len() >= profiles);
        assert_eq!(planned.costs.len(), machines.unwrap_or(planned.distribution.profiles.len()));
        if condition::check_structure(&structure, &members, lookahead).is_realizable() {
            assert!(check_reconstruction(program, &planned.distribution, executions), "{options:?} {program:?}");
            assert!(planned.check.is_realizable());
            if let Some(limit) = limit {
                let most = planned.distribution.profiles.iter().map(Vec::len).max();
                assert!(most <= Some(limit) || limit == 4, "{options:?} {planned:?} {program:?}");
            }
        }
    }
}

/// Returns the cost of the most expensive machine of a plan, and whether the plan is realizable.
fn plan_cost(program: &WitnessProgram, weights: &Weights, options: &DistributionOptions, entries: &[Witness]) -> Option<(f64, bool)> {
    let planned = distribution::plan_with_entries(program, WitnessKind::Nodes, weights, options, entries).ok()?;
    let distribution = &planned.distribution;
    for profile in &distribution.profiles {
        assert!(profile.is_sorted() && options.limit.is_none_or(|limit| profile.len() <= limit || limit == 4), "{options:?}");
    }
    assert!(entries.iter().all(|entry| distribution.profiles.iter().any(|profile| profile.contains(entry))));
    let loads = distribution.profiles.iter().map(|p| weights.sum(WitnessKind::Nodes, p));
    let mut of_machines = vec![0.0; planned.costs.len()];
    loads.zip(&planned.machine_of).for_each(|(load, machine)| of_machines[*machine] += load);
    let structure = PushdownStructure::new(Pushdown::new(program, WitnessKind::Nodes));
    let check = condition::check_structure(&structure, &condition::members(program, distribution), options.lookahead);
    Some((of_machines.into_iter().fold(0.0, f64::max), check.is_realizable()))
}

#[test]
fn weighted_costs_no_more_than_the_published_strategies() {
    let (mut random, mut compared) = (Random::new(31), 0);
    for number in 0..400 {
        let features = if number % 2 == 0 { ProgramFeatures::Calls } else { ProgramFeatures::All };
        let program = programs::program(&mut random, 4, 6, 9, features);
        let weights = Weights::estimate(&program);
        let all: Vec<Witness> = program.function_ids().flat_map(|f| programs::witnesses_of(&program, WitnessKind::Nodes, f)).collect();
        let entries: Vec<Witness> = all.into_iter().filter(|_| random.chance(10)).collect();
        let options = DistributionOptions {
            profiles: 1 + random.index(4),
            strategy: DistributionStrategy::Weighted,
            order: WitnessJobOrder::LongestFirst,
            limit: random.pick(&[None, None, Some(4), Some(8)]),
            machines: random.pick(&[None, Some(1), Some(2)]),
            lookahead: random.pick(&[Lookahead::NextSymbol, Lookahead::OwnComponent]),
        };
        let weighted = plan_cost(&program, &weights, &options, &entries);
        for strategy in [DistributionStrategy::Fine, DistributionStrategy::Function, DistributionStrategy::Grouped] {
            let Some((cost, holds)) = plan_cost(&program, &weights, &DistributionOptions { strategy, ..options }, &entries) else {
                continue;
            };
            let (ours, ours_holds) = weighted.expect("a published strategy finds a plan");
            assert!(ours_holds || !holds, "{strategy:?} {options:?} {program:?}");
            assert!(ours <= cost * (1.0 + 1e-9) || ours_holds && !holds, "{ours} {cost} {strategy:?} {options:?} {program:?}");
            compared += 1;
        }
    }
    assert!(compared > 800, "{compared}");
}

#[test]
fn strategies_plan_realizable_distributions() {
    let mut random = Random::new(30);
    for number in 0..600 {
        let program = match number % 3 {
            0 => WitnessProgram::from_graph(graphs::graph(&mut random, 7, 12, CycleKind::Some)).unwrap(),
            1 => programs::program(&mut random, 3, 5, 7, ProgramFeatures::Calls),
            _ => programs::program(&mut random, 3, 5, 7, ProgramFeatures::All),
        };
        let executions = programs::executions(&program, 20, 30);
        check_strategies(&mut random, &program, &executions);
    }
}
