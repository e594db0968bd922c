//! Tests the events of a reconstruction (calls, returns, tail calls, runs that end inside calls, unwinding, callbacks) and the errors that
//! report contradictions.

use trodden_flow::{Graph, Node};
use trodden_testkit::programs::witnesses_of;
use trodden_witness::{
    BranchNode, Distribution, EdgeWeights, ExecutionEvent, NodeKind, Opaque, ProgramCall, ReconstructError, Reconstruction,
    ReconstructionOutcome, StartPoint, TraceEnding, Weights, Witness, WitnessEdgeKind, WitnessFunction, WitnessFunctionId, WitnessKind,
    WitnessProgram, check_pairwise,
};

const MAIN: WitnessFunctionId = WitnessFunctionId(0);
const F: WitnessFunctionId = WitnessFunctionId(1);

fn function(name: &str, nodes: u32, edges: &[(u32, u32)], calls: &[(u32, ProgramCall)]) -> WitnessFunction {
    let edges = edges.iter().map(|&(a, b)| (Node(a), Node(b))).collect();
    let mut function = WitnessFunction::new(name, Graph::new(nodes, Node(0), Node(nodes - 1), edges).unwrap());
    function.calls = calls.iter().map(|(n, c)| (Node(*n), c.clone())).collect();
    function
}

fn program(functions: Vec<WitnessFunction>) -> WitnessProgram {
    WitnessProgram::new(functions, StartPoint::Main(MAIN), Vec::new()).unwrap()
}

/// Puts witnesses on all nodes that can have one, in a single profile.
fn all_nodes(program: &WitnessProgram) -> Distribution {
    let all = program.function_ids().flat_map(|f| witnesses_of(program, WitnessKind::Nodes, f)).collect();
    Distribution::new(program, WitnessKind::Nodes, vec![all]).unwrap()
}

fn trace(program: &WitnessProgram, blocks: &[(WitnessFunctionId, u32)]) -> Vec<Witness> {
    blocks.iter().map(|(f, n)| program.node_witness(*f, Node(*n))).collect()
}

/// Returns the events, the outcome and the maximum number of frames for a trace of all nodes.
fn events(
    program: &WitnessProgram,
    blocks: &[(WitnessFunctionId, u32)],
) -> Result<(Vec<ExecutionEvent>, ReconstructionOutcome, usize), ReconstructError> {
    let reconstruction = Reconstruction::new(program, &all_nodes(program));
    let mut walk = reconstruction.start(vec![trace(program, blocks).into_iter()], TraceEnding::Complete)?;
    let (mut events, mut max_frames) = (Vec::new(), 0);
    while let Some(event) = walk.next_event()? {
        events.push(event);
        max_frames = max_frames.max(walk.frames().len());
    }
    Ok((events, walk.outcome().unwrap().clone(), max_frames))
}

#[test]
fn calls_inside_a_block_are_events() {
    let main = function("main", 3, &[(0, 1), (1, 2)], &[(1, ProgramCall::direct(F)), (1, ProgramCall::direct(F))]);
    let program = program(vec![main, function("f", 2, &[(0, 1)], &[])]);
    let (found, outcome, max_frames) = events(&program, &[(MAIN, 0), (MAIN, 1), (F, 0), (F, 1), (F, 0), (F, 1), (MAIN, 2)]).unwrap();
    let block = |f, n| ExecutionEvent::Block(f, Node(n));
    let call = ExecutionEvent::Call { caller: Some((MAIN, Node(1))), callee: F, tail: false };
    let f = [call, block(F, 0), block(F, 1), ExecutionEvent::Return(F)];
    let first = [ExecutionEvent::Call { caller: None, callee: MAIN, tail: false }, block(MAIN, 0), block(MAIN, 1)];
    let expected: Vec<ExecutionEvent> = [&first[..], &f, &f, &[block(MAIN, 2), ExecutionEvent::Return(MAIN)]].concat();
    assert_eq!((found, outcome, max_frames), (expected, ReconstructionOutcome::Complete(Vec::new()), 1));
}

#[test]
fn tail_calls_push_no_frames() {
    let mut f = function("f", 3, &[(0, 2), (0, 1), (1, 2)], &[(1, ProgramCall::direct(F))]);
    f.nodes[2] = NodeKind::Virtual;
    let program = program(vec![function("main", 2, &[(0, 1)], &[(0, ProgramCall::direct(F))]), f]);
    let mut blocks = vec![(MAIN, 0)];
    (0..1000).for_each(|_| blocks.extend([(F, 0), (F, 1)]));
    blocks.extend([(F, 0), (MAIN, 1)]);
    let (found, outcome, max_frames) = events(&program, &blocks).unwrap();
    assert_eq!((outcome, max_frames), (ReconstructionOutcome::Complete(Vec::new()), 1));
    assert_eq!(found.iter().filter(|e| matches!(e, ExecutionEvent::Call { tail: true, .. })).count(), 1000);
    assert_eq!(found.iter().filter(|e| matches!(e, ExecutionEvent::Return(_))).count(), 2);
}

#[test]
fn run_can_end_inside_calls() {
    let exits = Opaque { ends_run: true, ..Opaque::RETURNS };
    let main = function("main", 2, &[(0, 1)], &[(0, ProgramCall::direct(F))]);
    let program = program(vec![main, function("f", 2, &[(0, 1)], &[(0, ProgramCall::opaque(exits))])]);
    let (_, outcome, _) = events(&program, &[(MAIN, 0), (F, 0)]).unwrap();
    assert_eq!(outcome, ReconstructionOutcome::Complete(vec![(MAIN, Node(0)), (F, Node(0))]));
    let (_, outcome, _) = events(&program, &[(MAIN, 0), (F, 0), (F, 1), (MAIN, 1)]).unwrap();
    assert_eq!(outcome, ReconstructionOutcome::Complete(Vec::new()));
}

#[test]
fn unwinding_leaves_frames_up_to_the_landing_pad() {
    // In main, block 0 calls f, and continues with 2 or unwinds to 1. In f, block 0 calls f or throws.
    let mut main = function("main", 3, &[(0, 2), (0, 1), (1, 2)], &[(0, ProgramCall::direct(F))]);
    main.edges[1] = WitnessEdgeKind::Unwind;
    let recurses = ProgramCall { callees: vec![F], opaque: Some(Opaque { unwinds: true, ..Opaque::RETURNS }), keeps_frame: false };
    let program = program(vec![main, function("f", 2, &[(0, 1)], &[(0, recurses)])]);
    assert!(check_pairwise(&program, &all_nodes(&program)).is_realizable());
    let (found, ..) = events(&program, &[(MAIN, 0), (F, 0), (F, 0), (MAIN, 1), (MAIN, 2)]).unwrap();
    assert_eq!(found.iter().filter(|e| **e == ExecutionEvent::Unwind(F)).count(), 2);
    let (found, ..) = events(&program, &[(MAIN, 0), (F, 0), (F, 0), (F, 1), (F, 1), (MAIN, 2)]).unwrap();
    assert_eq!(found.iter().filter(|e| **e == ExecutionEvent::Return(F)).count(), 2);
}

#[test]
fn recursion_is_realizable_if_the_landing_pad_always_catches() {
    // In f, block 0 calls f or throws, and continues with 1 or lands in 2, which continues with 1.
    let recurses = ProgramCall { callees: vec![F], opaque: Some(Opaque { unwinds: true, ..Opaque::RETURNS }), keeps_frame: false };
    let with_pad = |kind| {
        let mut f = function("f", 3, &[(0, 2), (0, 1), (1, 2)], &[(0, recurses.clone())]);
        f.edges[1] = kind;
        program(vec![function("main", 2, &[(0, 1)], &[(0, ProgramCall::direct(F))]), f])
    };
    let may_pass = with_pad(WitnessEdgeKind::Unwind);
    assert!(!check_pairwise(&may_pass, &all_nodes(&may_pass)).is_realizable());
    let lands = with_pad(WitnessEdgeKind::AlwaysCaught);
    assert!(check_pairwise(&lands, &all_nodes(&lands)).is_realizable());
    let (found, ..) = events(&lands, &[(MAIN, 0), (F, 0), (F, 0), (F, 1), (F, 2), (F, 2), (MAIN, 1)]).unwrap();
    assert_eq!(found.iter().filter(|e| **e == ExecutionEvent::Unwind(F)).count(), 0);
}

#[test]
fn code_outside_starts_the_run_and_calls_back() {
    // Code outside calls main; block 0 of main sorts, with f as the comparison function.
    let sorts = Opaque { calls_back: true, ..Opaque::RETURNS };
    let main = function("main", 2, &[(0, 1)], &[(0, ProgramCall::opaque(sorts))]);
    let program = WitnessProgram::new(vec![main, function("f", 2, &[(0, 1)], &[])], StartPoint::Outside, vec![MAIN, F]).unwrap();
    let (found, outcome, _) = events(&program, &[(MAIN, 0), (F, 0), (F, 1), (F, 0), (F, 1), (MAIN, 1)]).unwrap();
    assert_eq!(found.iter().filter(|e| matches!(e, ExecutionEvent::Call { caller: None, callee: F, .. })).count(), 2);
    assert_eq!(outcome, ReconstructionOutcome::Complete(Vec::new()));
}

#[test]
fn contradiction_is_reported_at_its_position() {
    let program = program(vec![function("main", 4, &[(0, 1), (0, 2), (1, 3), (2, 3)], &[])]);
    let error = |blocks: &[u32]| {
        let blocks: Vec<(WitnessFunctionId, u32)> = blocks.iter().map(|n| (MAIN, *n)).collect();
        events(&program, &blocks).unwrap_err()
    };
    let witness = |n| Some(Witness(n));
    let (branch, next) = (BranchNode::Node(MAIN, Node(0)), vec![witness(3)]);
    assert_eq!(error(&[0, 3]), ReconstructError::NoSuccessor { branch, blocks: 1, next });
    let expected = Witness(3);
    assert_eq!(error(&[0, 1, 2]), ReconstructError::UnexpectedSymbol { profile: 0, position: 2, found: witness(2), expected, blocks: 2 });
    assert_eq!(error(&[0, 1]), ReconstructError::UnexpectedSymbol { profile: 0, position: 2, found: None, expected, blocks: 2 });
    assert_eq!(error(&[0, 1, 3, 3]), ReconstructError::TraceContinues { profile: 0, position: 3, found: Witness(3), blocks: 3 });
    let reconstruction = Reconstruction::new(&program, &all_nodes(&program));
    let none: Vec<std::vec::IntoIter<Witness>> = Vec::new();
    assert!(matches!(reconstruction.start(none, TraceEnding::Complete), Err(ReconstructError::Traces { traces: 0, profiles: 1 })));
}

#[test]
fn weights_propagate_along_calls() {
    let main = function("main", 3, &[(0, 1), (1, 1), (1, 2)], &[(1, ProgramCall::direct(F))]);
    let program = program(vec![main, function("f", 3, &[(0, 1), (0, 2), (1, 2)], &[])]);
    let known = [EdgeWeights::PerRun(vec![1.0, 9.0, 1.0]), EdgeWeights::PerBranch(vec![1.0, 3.0, 1.0])];
    let weights = Weights::new(&program, &known);
    let node = |f, n| weights.node(&program, f, Node(n));
    assert_eq!([node(MAIN, 0), node(MAIN, 1), node(F, 0), node(F, 1), node(F, 2)], [1.0, 10.0, 10.0, 2.5, 10.0]);
    let cost = |n| weights.cost(WitnessKind::Nodes, Witness(n));
    assert_eq!([cost(3), cost(4), cost(5)], [10.0, 2.5, 10.0]);
}
