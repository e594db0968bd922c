//! Large functions and programs: plans are realizable, and a long walk is reconstructed as it arrives, without reading further ahead than
//! necessary.

use std::cell::Cell;
use trodden_flow::{Graph, Node};
use trodden_testkit::Random;
use trodden_witness::distribution::plan;
use trodden_witness::{
    DistributionOptions, DistributionStrategy, ExecutionEvent, Lookahead, ProgramCall, Reconstruction, StartPoint, TraceEnding, Weights,
    Witness, WitnessFunction, WitnessFunctionId, WitnessJobOrder, WitnessKind, WitnessProgram,
};

/// Generates a graph like those of functions, with a spine, forward branches and loops.
fn graph(random: &mut Random, nodes: u32) -> Graph {
    let mut edges: Vec<(Node, Node)> = (1..nodes).map(|n| (Node(n - 1), Node(n))).collect();
    for from in 0..nodes - 2 {
        if random.chance(45) {
            edges.push((Node(from), Node((from + 2 + random.below(6) as u32).min(nodes - 1))));
        }
        if random.chance(8) && from > 4 {
            edges.push((Node(from), Node(1 + random.below(u64::from(from)) as u32)));
        }
    }
    Graph::new(nodes, Node(0), Node(nodes - 1), edges).unwrap()
}

/// Generates functions that call later functions, some of them indirectly.
fn program(random: &mut Random, functions: u32, nodes: u32) -> WitnessProgram {
    let mut list = Vec::new();
    for id in 0..functions {
        let size = 3 + random.below(2 * u64::from(nodes)) as u32;
        let mut function = WitnessFunction::new(format!("f{id}"), graph(random, size));
        for node in 0..size {
            let rest = u64::from(functions - id - 1).min(200);
            if rest > 0 && random.chance(15) {
                let mut callee = || WitnessFunctionId(id + 1 + random.below(rest) as u32);
                let callees = vec![callee(), callee()];
                let indirect = random.chance(5);
                function.calls.push((Node(node), ProgramCall::indirect(if indirect { callees } else { vec![callees[0]] })));
            }
        }
        list.push(function);
    }
    WitnessProgram::new(list, StartPoint::Main(WitnessFunctionId(0)), Vec::new()).unwrap()
}

/// Walks randomly over `blocks` blocks, or to the end of the run. Returns the walk, and whether the run ended.
fn walk(random: &mut Random, program: &WitnessProgram, blocks: usize) -> (Vec<Witness>, bool) {
    let mut walked = Vec::new();
    let mut frames = vec![(WitnessFunctionId(0), Node(0), 0usize)];
    let mut enter = true;
    while walked.len() < blocks {
        let Some((function, node, calls_made)) = frames.last_mut() else { return (walked, true) };
        let of = program.function(*function);
        if std::mem::take(&mut enter) {
            walked.push(program.node_witness(*function, *node));
        }
        if let Some((_, call)) = of.calls.iter().filter(|(n, _)| n == node).nth(*calls_made) {
            *calls_made += 1;
            let callee = random.pick(&call.callees);
            frames.push((callee, program.function(callee).graph.entry(), 0));
            enter = true;
        } else if *node == of.graph.exit() {
            frames.pop();
        } else {
            let out = of.graph.out(*node);
            (*node, *calls_made) = (of.graph.to(out[random.index(out.len())]), 0);
            enter = true;
        }
    }
    (walked, false)
}

fn options(profiles: usize, strategy: DistributionStrategy, limit: Option<usize>) -> DistributionOptions {
    DistributionOptions {
        profiles,
        strategy,
        order: WitnessJobOrder::LongestFirst,
        limit,
        machines: None,
        lookahead: Lookahead::NextSymbol,
    }
}

/// Plans a distribution and reconstructs a walk. Fails if a trace is read more than one symbol beyond the returned events.
fn plan_and_reconstruct(random: &mut Random, program: &WitnessProgram, options: &DistributionOptions, blocks: usize) {
    let weights = Weights::estimate(program);
    let planned = plan(program, WitnessKind::Nodes, &weights, options).unwrap();
    assert!(planned.check.is_realizable());
    let reconstruction = Reconstruction::new(program, &planned.distribution);
    let (walked, ended) = walk(random, program, blocks);
    let read = Cell::new(0usize);
    let of = |profile: &Vec<Witness>| walked.iter().copied().filter(|w| profile.binary_search(w).is_ok()).collect::<Vec<_>>();
    let traces: Vec<Vec<Witness>> = planned.distribution.profiles.iter().map(of).collect();
    let counted = traces.iter().map(|t| t.iter().copied().inspect(|_| read.set(read.get() + 1))).collect();
    let ending = if ended { TraceEnding::Complete } else { TraceEnding::Truncated };
    let mut reconstructor = reconstruction.start(counted, ending).unwrap();
    let (mut at, mut consumed) = (0, 0);
    while let Some(event) = reconstructor.next_event().unwrap() {
        let ExecutionEvent::Block(function, node) = event else { continue };
        assert_eq!(program.node_witness(function, node), walked[at]);
        consumed += planned.distribution.profiles.iter().filter(|p| p.binary_search(&walked[at]).is_ok()).count();
        at += 1;
        assert!(read.get() <= consumed + traces.len(), "more than one symbol of a trace is held");
    }
    assert!(at + 2000 > walked.len(), "{:?}: {at} of {}", options.strategy, walked.len());
}

#[test]
fn function_of_5000_blocks_is_reconstructed() {
    // A partial trace that is empty because the walk was truncated cannot decide any branch. With this seed, none is empty.
    let mut random = Random::new(41);
    let program = WitnessProgram::from_graph(graph(&mut random, 5000)).unwrap();
    for strategy in [DistributionStrategy::Function, DistributionStrategy::Grouped, DistributionStrategy::Fine] {
        plan_and_reconstruct(&mut random, &program, &options(4, strategy, None), 50_000);
    }
}

#[test]
fn program_of_5000_functions_is_reconstructed() {
    let mut random = Random::new(41);
    let program = program(&mut random, 5000, 10);
    plan_and_reconstruct(&mut random, &program, &options(4, DistributionStrategy::Grouped, None), 50_000);
}

#[test]
fn limits_of_4_and_30_witnesses_are_met() {
    let mut random = Random::new(42);
    let program = program(&mut random, 40, 8);
    for limit in [4, 30] {
        let options = options(4, DistributionStrategy::Fine, Some(limit));
        let planned = plan(&program, WitnessKind::Nodes, &Weights::estimate(&program), &options).unwrap();
        assert!(planned.check.is_realizable());
        assert!(planned.distribution.profiles.iter().all(|p| p.len() <= limit));
    }
    plan_and_reconstruct(&mut random, &program, &options(4, DistributionStrategy::Fine, Some(30)), 20_000);
}

fn diamonds(count: u32) -> WitnessProgram {
    let of = |at: u32| [(at, at + 1), (at, at + 2), (at + 1, at + 3), (at + 2, at + 3)];
    let edges = (0..count).flat_map(|n| of(3 * n)).map(|(a, b)| (Node(a), Node(b))).collect();
    let graph = Graph::new(3 * count + 1, Node(0), Node(3 * count), edges).unwrap();
    WitnessProgram::new(vec![WitnessFunction::new("f".to_owned(), graph)], StartPoint::Main(WitnessFunctionId(0)), Vec::new()).unwrap()
}

#[test]
fn many_branches_need_few_more_witnesses_than_branches() {
    let mut random = Random::new(10_000);
    for (count, witnesses) in [(900, 900..=900), (10_000, 10_030..=10_040)] {
        let program = diamonds(count);
        let options = options(1, DistributionStrategy::Grouped, None);
        let planned = plan(&program, WitnessKind::Nodes, &Weights::estimate(&program), &options).unwrap();
        assert!(witnesses.contains(&planned.distribution.profiles[0].len()));
        plan_and_reconstruct(&mut random, &program, &options, 40_000);
    }
}

#[test]
fn limit_is_met_in_function_with_many_branches() {
    let program = diamonds(1100);
    let options = options(300, DistributionStrategy::Fine, Some(4));
    let planned = plan(&program, WitnessKind::Nodes, &Weights::estimate(&program), &options).unwrap();
    assert!(planned.check.is_realizable());
    assert!(planned.distribution.profiles.iter().all(|profile| profile.len() <= 4));
}
