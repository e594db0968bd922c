//! Compares call traces that are reconstructed from witnesses on calls and returns, on small random programs, with all short executions.

use std::collections::HashMap;
use trodden_testkit::Random;
use trodden_testkit::programs::{self, CallOrReturn, Execution, ProgramFeatures};
use trodden_witness::condition::{check_structure, members};
use trodden_witness::distribution::plan;
use trodden_witness::pushdown::Pushdown;
use trodden_witness::structure::PushdownStructure;
use trodden_witness::{
    CallAndReturnProgram, Distribution, DistributionOptions, DistributionStrategy, ExecutionEvent, Lookahead, Reconstruction,
    ReconstructionOutcome, TraceEnding, Weights, Witness, WitnessJobOrder, WitnessKind, WitnessProgram, WitnessSite,
};

const NODES: WitnessKind = WitnessKind::Nodes;

fn options(random: &mut Random) -> DistributionOptions {
    DistributionOptions {
        profiles: 1 + random.index(3),
        strategy: random.pick(&[DistributionStrategy::Fine, DistributionStrategy::Function, DistributionStrategy::Weighted]),
        order: WitnessJobOrder::LongestFirst,
        limit: None,
        machines: None,
        lookahead: Lookahead::OwnComponent,
    }
}

/// Removes tail calls, because the end of a frame that code outside has replaced is unknown.
fn without_tail_calls(program: &WitnessProgram) -> WitnessProgram {
    let mut functions = program.functions().to_vec();
    functions.iter_mut().flat_map(|function| &mut function.calls).for_each(|(_, call)| call.keeps_frame = true);
    WitnessProgram::new(functions, program.start(), program.external().to_vec()).unwrap()
}

/// Returns true if a run with a witness on every block determines the execution by the next symbol at each branch.
fn is_traceable(program: &WitnessProgram) -> bool {
    let all = program.function_ids().flat_map(|f| programs::witnesses_of(program, NODES, f)).collect();
    let all = Distribution::new(program, NODES, vec![all]).unwrap();
    let structure = PushdownStructure::new(Pushdown::new(program, NODES));
    check_structure(&structure, &members(program, &all), Lookahead::NextSymbol).is_realizable()
}

/// Returns the length of an execution's partial traces, and the call trace that is reconstructed from them.
fn reconstruct_calls(
    calls: &CallAndReturnProgram,
    program: &WitnessProgram,
    distribution: &Distribution,
    execution: &Execution,
) -> (usize, Vec<CallOrReturn>) {
    let reduced: HashMap<Witness, Witness> =
        (0..calls.program.witness_count(NODES) as u32).map(|w| (calls.origin(Witness(w)), Witness(w))).collect();
    let symbol = |site: &WitnessSite| match *site {
        WitnessSite::Node(function, node) => reduced.get(&program.node_witness(function, node)).copied(),
        WitnessSite::Edge(..) => None,
    };
    let all: Vec<Witness> = execution.sites.iter().filter_map(symbol).collect();
    let trace = |profile: &Vec<Witness>| all.iter().copied().filter(|w| profile.binary_search(w).is_ok()).collect::<Vec<_>>();
    let traces: Vec<Vec<Witness>> = distribution.profiles.iter().map(trace).collect();
    let hits = traces.iter().map(Vec::len).sum();
    let reconstruction = Reconstruction::new(&calls.program, distribution);
    let mut walk = reconstruction.start(traces.into_iter().map(Vec::into_iter).collect(), TraceEnding::Complete).unwrap();
    let mut steps = Vec::new();
    // Frames, and whether each was replaced by a tail call, so that it ends together with its callee.
    let mut frames = Vec::new();
    while let Some(event) = walk.next_event().unwrap_or_else(|e| panic!("{e}: {distribution:?} {program:?} {execution:?}")) {
        match event {
            ExecutionEvent::Block(..) => {}
            ExecutionEvent::Call { callee, tail, .. } => {
                frames.last_mut().into_iter().for_each(|(_, left)| *left |= tail);
                frames.push((callee, false));
                steps.push(CallOrReturn::Enter(callee));
            }
            ExecutionEvent::Return(function) | ExecutionEvent::Unwind(function) => {
                assert_eq!(frames.last(), Some(&(function, false)), "{program:?}");
                steps.extend(frames.pop().map(|(function, _)| CallOrReturn::Leave(function)));
                while let Some((function, _)) = frames.pop_if(|(_, left)| *left) {
                    steps.push(CallOrReturn::Leave(function));
                }
            }
        }
    }
    assert!(matches!(walk.outcome(), Some(ReconstructionOutcome::Complete(_))));
    (hits, steps)
}

#[test]
fn call_traces_are_reconstructed_from_fewer_hits() {
    for features in [ProgramFeatures::Calls, ProgramFeatures::All] {
        let mut random = Random::new(33);
        let (mut checked, mut hits, mut whole_hits) = (0, 0usize, 0usize);
        for _ in 0..1500 {
            let mut program = programs::program(&mut random, 3, 6, 9, features);
            if features == ProgramFeatures::All {
                program = without_tail_calls(&program);
            }
            let executions = programs::executions(&program, 24, 60);
            if executions.len() < 2 {
                continue;
            }
            let calls = CallAndReturnProgram::new(&program).unwrap();
            let (options, weights) = (options(&mut random), Weights::estimate(&program));
            let planned = plan(&calls.program, NODES, &calls.weights(&weights), &options).unwrap();
            assert!(planned.check.is_realizable() || !is_traceable(&program), "{options:?} {program:?}");
            if !planned.check.is_realizable() {
                continue;
            }
            let whole = plan(&program, NODES, &weights, &options).unwrap();
            for execution in &executions {
                let (own, steps) = reconstruct_calls(&calls, &program, &planned.distribution, execution);
                assert_eq!(steps, execution.calls, "{:?} {program:?} {execution:?}", planned.distribution);
                hits += own;
                let is_hit = |site: &WitnessSite, profile: &Vec<Witness>| match *site {
                    WitnessSite::Node(f, n) => profile.binary_search(&program.node_witness(f, n)).is_ok(),
                    WitnessSite::Edge(..) => false,
                };
                let of_profile = |profile| execution.sites.iter().filter(|site| is_hit(site, profile)).count();
                whole_hits += whole.distribution.profiles.iter().map(of_profile).sum::<usize>();
            }
            checked += 1;
        }
        assert!(checked > 200 && hits * 10 < whole_hits * 9, "{features:?}: {checked} programs, {hits} of {whole_hits} hits");
    }
}
