//! The verifier of probe programs accepts what schemes and passes make of random graphs, irreducible ones included, and rejects faulty
//! programs.

use crate::machine::random_block_properties;
use std::collections::BTreeSet;
use trodden_flow::dag::Entries;
use trodden_flow::part::Measure;
use trodden_flow::plan::Plan;
use trodden_flow::program::operation::Operation;
use trodden_flow::program::verify::{WalkBudget, verify_counts, verify_numbering};
use trodden_flow::program::{DominantCounting, EarlyCounting, PassChoices, StreamEdges, TripCounting};
use trodden_flow::residual::ResidualInput;
use trodden_flow::{Edge, EdgeSet, Graph, Node, NumberingScheme, ProbeProgram, ResidualPlan};
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, ProfitableProcedures};
use trodden_selective::NumberOptions;
use trodden_selective::plan::{InterestingInput, plan_interesting};
use trodden_selective::verify::VerifyBudget;
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, forced_cuts, graph, plan_options};

use crate::machine;
use crate::passes;

const BUDGET: WalkBudget = WalkBudget { walks: 6, edges: 40 };

/// Returns a random graph whose exit is its last node and has no out-edges.
fn random_graph_with_last_exit(random: &mut Random) -> Option<Graph> {
    let graph = graph(random, 9, 16, CycleKind::Some);
    (graph.out(graph.exit()).is_empty() && graph.exit().index() + 1 == graph.node_count()).then_some(graph)
}

/// Returns true if a cycle remains when all back edges to dominators of their tails are removed.
fn is_irreducible(graph: &Graph) -> bool {
    let reached_without = |without: Option<Node>| {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![graph.entry()]);
        while let Some(node) = stack.pop() {
            if Some(node) != without && seen.insert(node) {
                stack.extend(graph.out(node).iter().map(|e| graph.to(*e)));
            }
        }
        seen
    };
    let reached = reached_without(None);
    let closes = |e: &Edge| graph.to(*e) == graph.from(*e) || !reached_without(Some(graph.to(*e))).contains(&graph.from(*e));
    let mut rest: Vec<Edge> = graph.edges().filter(|e| reached.contains(&graph.from(*e)) && !closes(e)).collect();
    loop {
        let heads: BTreeSet<Node> = rest.iter().map(|e| graph.to(*e)).collect();
        let before = rest.len();
        rest.retain(|e| heads.contains(&graph.from(*e)));
        if rest.is_empty() || rest.len() == before {
            return !rest.is_empty();
        }
    }
}

/// Number of schemes that [`random_program`] supports.
const SCHEMES: u64 = 4;

fn random_program(random: &mut Random, graph: &Graph, scheme: u64) -> Option<ProbeProgram> {
    let (cuts, frequencies) = (forced_cuts(random, graph), machine::random_frequencies(random, graph));
    let options = plan_options(random);
    let plan = || Plan::ball_larus(graph, &cuts, &frequencies, &options);
    Some(match scheme {
        0 => ProbeProgram::from_plan(graph, &plan()),
        1 => {
            let (dag, numbering) = Plan::cut_and_number(graph, &cuts, Entries::Shared).ok()?;
            let ids: Vec<u64> = (0..numbering.paths().min(50)).filter(|_| random.chance(40)).collect();
            let input =
                InterestingInput { scheme: random.pick(&NumberingScheme::ALL), ids: &ids, marks_call: &EdgeSet::empty(graph.edge_count()) };
            let number = NumberOptions::default();
            let planned = plan_interesting(graph, (dag, numbering), &input, &frequencies, &number, &VerifyBudget::default()).ok()?;
            ProbeProgram::from_interesting(graph, planned)
        }
        2 => {
            let dag = plan().dag;
            let frequencies = dag.edges().iter().map(|_| random.below(100)).collect();
            let procedure = Procedure { dag: dag.clone(), frequencies, paths: Vec::new(), call_sites: None, unit: 0 };
            let options = PartitionOptions { copies: 2, profitable: ProfitableProcedures::ALL, fold_again: true, measure: Measure::All };
            let mut copies = trodden_partition::plan(&[procedure], PartitionStrategy::P3, &options).copies;
            ProbeProgram::from_plan(graph, &Plan::from_part(dag, copies.pop()?.parts.remove(0)?)?)
        }
        _ => {
            let plan = plan();
            let known: Vec<(u64, u64)> = (0..plan.numbering.paths().min(50)).filter(|_| random.chance(40)).map(|id| (id, 1000)).collect();
            let of = ResidualInput { paths: &known, uncopied: &[], marks_call: &EdgeSet::empty(graph.edge_count()) };
            let residual = ResidualPlan::new(&plan.dag, &plan.numbering, of);
            if random.chance(50) { residual.program_with_versions(graph, &plan) } else { residual.program_with_lookups(graph, &plan) }
        }
    })
}

fn random_choices(random: &mut Random) -> PassChoices {
    PassChoices {
        trip_counts: random.pick(&[TripCounting::Off, TripCounting::Tight, TripCounting::On]),
        early: if random.chance(80) { EarlyCounting::IfProfitable } else { EarlyCounting::IfNecessary },
        dominant: random.pick(&[DominantCounting::Shared, DominantCounting::Split, DominantCounting::Register]),
    }
}

#[test]
fn programs_of_all_schemes_count_their_paths_after_every_pass() {
    let (mut verified, mut irreducible) = ([0; SCHEMES as usize], 0);
    for seed in 0..12_000 {
        let mut random = Random::new(seed ^ 0x9e_7a);
        let Some(graph) = random_graph_with_last_exit(&mut random) else { continue };
        let scheme = seed % SCHEMES;
        let Some(mut program) = random_program(&mut random, &graph, scheme) else { continue };
        assert_eq!(verify_numbering(&program), Ok(()), "seed {seed}");
        let (blocks, choices) = (
            random_block_properties(&mut random, program.graph()),
            random_choices(&mut random).limited_to(passes::allowed_passes(&program)),
        );
        let frequencies = machine::random_frequencies(&mut random, &graph);
        program.run_verified_passes(&frequencies, &blocks, choices, &BUDGET).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        verified[scheme as usize] += 1;
        irreducible += usize::from(is_irreducible(&graph));
    }
    assert!(verified.iter().all(|n| *n > 500) && irreducible > 200, "{verified:?}, {irreducible} of irreducible graphs");
}

/// Returns a program that appends every path to a stream. Some of its counts were moved early.
fn streaming_program(random: &mut Random, graph: &Graph) -> ProbeProgram {
    let mut program = random_program(random, graph, 0).expect("every path has a program");
    let blocks = random_block_properties(random, graph);
    let early = if random.chance(60) { EarlyCounting::IfProfitable } else { EarlyCounting::IfNecessary };
    let choices = PassChoices { early, ..PassChoices::COUNTING_AT_PATH_ENDS };
    let frequencies = machine::random_frequencies(random, graph);
    program.run_passes(&frequencies, &blocks, choices);
    let is_end = |e: Edge| graph.to(e) == graph.exit();
    let leaves = EdgeSet::from_fn(graph.edge_count(), |e| is_end(e) && random.chance(60));
    let ends_path = |e: Edge| is_end(e) || program.cut(e).is_some();
    let may_call = |e: Edge| ends_path(e) && !leaves.contains(e) && !blocks.quiet.contains(graph.from(e));
    let calls = EdgeSet::from_fn(graph.edge_count(), |e| may_call(e) && random.chance(80));
    program.write_stream(StreamEdges { leaves, calls });
    program
}

#[test]
fn streams_contain_the_paths_of_walks_in_order() {
    let (mut verified, mut early) = (0, 0);
    for seed in 0..12_000 {
        let mut random = Random::new(seed ^ 0x57_4ea);
        let Some(graph) = random_graph_with_last_exit(&mut random) else { continue };
        let program = streaming_program(&mut random, &graph);
        verify_counts(&program, &BUDGET).unwrap_or_else(|fault| panic!("seed {seed}: {fault}\n{program}"));
        verified += 1;
        early += usize::from(graph.edges().any(|e| program.counts_before_path_end(e)));
    }
    assert!(verified > 1_000 && early > 100, "{verified}, {early} with paths that are appended early");
}

#[test]
fn faulty_streams_are_rejected() {
    let (mut corrupted, mut rejected) = ([0; 4], [0; 4]);
    for seed in 0..16_000 {
        let mut random = Random::new(seed ^ 0xfa_57_4e);
        let Some(graph) = random_graph_with_last_exit(&mut random) else { continue };
        let mut program = streaming_program(&mut random, &graph);
        let edges: Vec<Edge> = graph.edges().filter(|e| !program.operations(*e).is_empty()).collect();
        if edges.is_empty() {
            continue;
        }
        let (kind, edge) = (seed as usize % 4, random.pick(&edges));
        let mut operations = program.operations(edge).to_vec();
        let is = |o: &Operation| match kind {
            0 | 1 => matches!(o, Operation::Emit { .. }),
            2 => *o == Operation::LeaveCall,
            _ => *o == Operation::NoteCall,
        };
        let Some(at) = operations.iter().position(is) else { continue };
        match &mut operations[at] {
            Operation::Emit { increment } if kind == 0 => *increment += 1,
            _ => drop(operations.remove(at)),
        }
        program.set_operations(edge, operations);
        corrupted[kind] += 1;
        rejected[kind] += usize::from(verify_counts(&program, &WalkBudget { walks: 200, edges: 40 }).is_err());
    }
    // Edges that are on no walk to the exit are not verified. A removed note may only repeat an earlier note.
    assert!((0..4).all(|k| corrupted[k] > 50 && rejected[k] * 2 > corrupted[k]), "{rejected:?} of {corrupted:?}");
}

/// Returns the operations with a fault in one of them, or `None` if the change is not a fault.
fn corrupt(random: &mut Random, operations: &[Operation]) -> Option<Vec<Operation>> {
    let at = random.index(operations.len());
    let mut wrong = operations.to_vec();
    match &mut wrong[at] {
        Operation::Add(increment) | Operation::Count { increment } | Operation::Check { increment } => *increment += 1,
        Operation::CountIteration { increment, .. } => *increment += 1,
        Operation::Flush { .. } | Operation::FlushDominant(_) | Operation::Iterate(_) => drop(wrong.remove(at)),
        _ => return None,
    }
    Some(wrong)
}

#[test]
fn faulty_programs_are_rejected() {
    let (mut corrupted, mut rejected) = (0, 0);
    for seed in 0..6_000 {
        let mut random = Random::new(seed ^ 0xfa_017);
        let Some(graph) = random_graph_with_last_exit(&mut random) else { continue };
        let Some(mut program) = random_program(&mut random, &graph, 0) else { continue };
        let blocks = random_block_properties(&mut random, program.graph());
        let frequencies = machine::random_frequencies(&mut random, &graph);
        program.run_passes(&frequencies, &blocks, random_choices(&mut random));
        let with_code: Vec<Edge> = graph.edges().filter(|e| !program.operations(*e).is_empty()).collect();
        if with_code.is_empty() {
            continue;
        }
        let edge = random.pick(&with_code);
        let Some(wrong) = corrupt(&mut random, program.operations(edge)) else { continue };
        program.set_operations(edge, wrong);
        corrupted += 1;
        rejected += usize::from(verify_counts(&program, &WalkBudget { walks: 200, edges: 40 }).is_err());
    }
    // Edges that are on no walk to the exit are not verified.
    assert!(corrupted > 1_000 && rejected * 100 > corrupted * 70, "{rejected} of {corrupted}");
}
