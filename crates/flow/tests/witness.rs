//! The pairwise condition and the reconstruction, on random graphs and small random programs, against all their short executions.

use trodden_flow::witness::condition::check_pairwise;
use trodden_flow::witness::{Distribution, Ending, Outcome, Program, Reconstruction, Site, Witness, WitnessKind};
use trodden_testkit::Random;
use trodden_testkit::graphs::{self, Cycles};
use trodden_testkit::programs::{self, Execution, Features};

fn witness(program: &Program, kind: WitnessKind, site: &Site) -> Option<Witness> {
    match (kind, *site) {
        (WitnessKind::Nodes, Site::Node(function, node)) => Some(program.node_witness(function, node)),
        (WitnessKind::Edges, Site::Edge(function, edge)) => Some(program.edge_witness(function, edge)),
        _ => None,
    }
}

fn traces(program: &Program, distribution: &Distribution, execution: &Execution) -> Vec<Vec<Witness>> {
    let all: Vec<Witness> = execution.sites.iter().filter_map(|s| witness(program, distribution.kind, s)).collect();
    distribution.profiles.iter().map(|p| all.iter().copied().filter(|w| p.binary_search(w).is_ok()).collect()).collect()
}

fn random_distribution(random: &mut Random, program: &Program) -> Distribution {
    let kind = random.pick(&[WitnessKind::Nodes, WitnessKind::Edges]);
    let percent = random.pick(&[30, 50, 70, 90, 95, 100]);
    let all: Vec<Witness> = program.function_ids().flat_map(|f| program.witnesses_of(kind, f).collect::<Vec<_>>()).collect();
    let profiles = 1 + random.below(3);
    let profile = |random: &mut Random| all.iter().copied().filter(|_| random.chance(percent)).collect();
    let profiles = (0..profiles).map(|_| profile(random)).collect();
    Distribution::new(program, kind, profiles).unwrap()
}

/// Whether the condition holds; then every execution is rebuilt.
fn holds(program: &Program, distribution: &Distribution, executions: &[Execution]) -> bool {
    if !check_pairwise(program, distribution).is_realizable() {
        return false;
    }
    let reconstruction = Reconstruction::new(program, distribution);
    for execution in executions {
        let traces = traces(program, distribution, execution);
        let mut walk = reconstruction.start(traces.iter().map(|t| t.iter().copied()).collect(), Ending::Complete).unwrap();
        let blocks = walk.blocks_to_end().unwrap_or_else(|e| panic!("{e}: {distribution:?} {program:?} {execution:?}"));
        assert_eq!(blocks, execution.blocks, "{distribution:?} {program:?}");
        assert!(matches!(walk.outcome(), Some(Outcome::Complete(_))));
        cut(&reconstruction, &traces, execution);
    }
    true
}

/// Traces that were cut give a beginning of the execution.
fn cut(reconstruction: &Reconstruction, traces: &[Vec<Witness>], execution: &Execution) {
    for part in [0, 1, 2] {
        let short = traces.iter().enumerate().map(|(i, t)| t[..t.len() * ((part + i) % 3) / 3].iter().copied()).collect();
        let mut walk = reconstruction.start(short, Ending::Cut).unwrap();
        let blocks = walk.blocks_to_end().unwrap();
        assert!(execution.blocks.starts_with(&blocks), "{blocks:?} {execution:?}");
    }
}

#[test]
fn graphs_are_rebuilt_wherever_the_condition_holds() {
    let mut random = Random::new(27);
    let mut count = 0;
    for _ in 0..4000 {
        let graph = graphs::graph(&mut random, 6, 9, Cycles::Some);
        let program = Program::from_graph(graph).unwrap();
        let distribution = random_distribution(&mut random, &program);
        let executions = programs::executions(&program, 12, 200);
        count += usize::from(executions.len() > 1 && holds(&program, &distribution, &executions));
    }
    assert!(count > 500, "{count}");
}

#[test]
fn programs_are_rebuilt_wherever_the_condition_holds() {
    for features in [Features::Calls, Features::All] {
        let mut random = Random::new(28);
        let mut count = 0;
        for _ in 0..10000 {
            let program = programs::program(&mut random, 3, 4, 5, features);
            let distribution = random_distribution(&mut random, &program);
            let executions = programs::executions(&program, 24, 100);
            count += usize::from(executions.len() > 1 && holds(&program, &distribution, &executions));
        }
        assert!(count > 150, "{features:?}: {count}");
    }
}
