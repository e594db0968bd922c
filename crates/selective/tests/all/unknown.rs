//! Known paths recognised by preferential numbering (thesis, section 3.5.1) and by PSPP (P3 paper, section 3.1) against those recognised by
//! their region: on random walks through random graphs, all count the same untested paths, as often as a plan of all paths does.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::frequency::Frequencies;
use trodden_flow::interesting::PathEndCounterMapping;
use trodden_flow::placement::Probes;
use trodden_flow::plan::{Plan, RegisterAction, probe_costs};
use trodden_flow::program::machine::ProbeMachine;
use trodden_flow::program::verify::{WalkBudget, verify_counts};
use trodden_flow::residual::ResidualInput;
use trodden_flow::{Edge, EdgeSet, Graph, NumberingScheme, ProbeProgram, ResidualPlan};
use trodden_selective::NumberOptions;
use trodden_selective::plan::map_register_to_listed_counters;
use trodden_selective::verify::VerifyBudget;
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, forced_cuts, graph, plan_options};

type Counts = BTreeMap<u64, u64>;

fn random_walk(random: &mut Random, graph: &Graph) -> Option<Vec<Edge>> {
    let (mut at, mut walk) = (graph.entry(), Vec::new());
    while at != graph.exit() {
        let out = graph.out(at);
        let edge = random.pick(if out.is_empty() || walk.len() > 100 { return None } else { out });
        walk.push(edge);
        at = graph.to(edge);
    }
    Some(walk)
}

fn count_with_full_plan(graph: &Graph, plan: &Plan, walks: &[Vec<Edge>]) -> Counts {
    let mut counts = Counts::new();
    for walk in walks {
        let mut register = 0;
        for edge in walk {
            match plan.action(graph, *edge) {
                RegisterAction::Add { increment } => register += increment,
                RegisterAction::Count { increment } => *counts.entry((register + increment) as u64).or_default() += 1,
                RegisterAction::CountAndRestart { increment, start } => {
                    *counts.entry((register + increment) as u64).or_default() += 1;
                    register = start;
                }
                RegisterAction::Dead => panic!("no walk takes a dead edge"),
            }
        }
    }
    counts
}

/// Returns the counts of a program. A path's number is in the bits of `mask`.
fn count_with_program(program: &ProbeProgram, known: &BTreeSet<u64>, walks: &[Vec<Edge>], mask: u64) -> Counts {
    let mut counts = Counts::new();
    let mut machine = ProbeMachine::with_known_paths(known.iter().map(|id| *id as i64));
    for walk in walks {
        machine.enter_function(program);
        let mut at = program.graph().entry();
        for edge in walk {
            let taken = program.graph().out(at).iter().copied().find(|e| program.origin(*e) == *edge).expect("all edges are there");
            machine.take_edge(program, taken).expect("no fault");
            at = program.graph().to(taken);
        }
    }
    machine.counts.iter().for_each(|(sum, count)| *counts.entry(*sum as u64 & mask).or_default() += count);
    counts
}

#[derive(Debug, Default)]
struct RecognitionCounts {
    out_of_range: u64,
    /// The path has the number of a tested path, but a different Ball-Larus number.
    other_path: u64,
    /// The number is in the range, but no tested path has it.
    own_number: u64,
}

impl RecognitionCounts {
    fn add<'a>(&mut self, plan: &Plan, ending: &PathEndCounterMapping, untested: impl Iterator<Item = &'a u64>) {
        let PathEndCounterMapping::Checked { bias, shift, expected } = ending else { panic!("listed paths are checked") };
        for id in untested {
            let path = plan.numbering.path(&plan.dag, *id).unwrap();
            let sum = path.iter().map(|edge| plan.probes.increment(*edge)).fold(0i64, i64::wrapping_add);
            let word = (sum.wrapping_add(*bias) as u64) >> shift;
            match expected.get(word as usize) {
                None => self.out_of_range += 1,
                Some(known) if *known >> shift == word => self.other_path += 1,
                Some(_) => self.own_number += 1,
            }
        }
    }
}

#[test]
fn regions_and_numbers_count_the_same_untested_paths() {
    let (mut graphs, mut untested) = (0, 0);
    let (mut preferential, mut selective) = (RecognitionCounts::default(), RecognitionCounts::default());
    for seed in 0..20_000 {
        let mut random = Random::new(seed ^ 0x99f0_11aa);
        let graph = graph(&mut random, 10, 18, CycleKind::Some);
        if !graph.out(graph.exit()).is_empty() || graph.exit().index() + 1 != graph.node_count() {
            continue;
        }
        let cuts = forced_cuts(&mut random, &graph);
        let frequencies = Frequencies::estimate(&graph, &vec![1.0; graph.edge_count()]);
        let plan = Plan::ball_larus(&graph, &cuts, &frequencies, &plan_options(&mut random));
        let walks: Vec<Vec<Edge>> = (0..10).filter_map(|_| random_walk(&mut random, &graph)).collect();
        let tested = random.index(walks.len() + 1);
        let known = count_with_full_plan(&graph, &plan, &walks[..tested]);
        if known.is_empty() {
            continue;
        }
        graphs += 1;
        let all = count_with_full_plan(&graph, &plan, &walks);
        let ids: BTreeSet<u64> = known.keys().copied().collect();
        let expected: Counts = all.iter().filter(|(id, _)| !ids.contains(id)).map(|(id, n)| (*id, *n)).collect();

        let list: Vec<(u64, u64)> = known.iter().map(|(id, count)| (*id, *count)).collect();
        let excluded = EdgeSet::empty(graph.edge_count());
        let region = ResidualPlan::new(&plan.dag, &plan.numbering, ResidualInput { paths: &list, uncopied: &[], marks_call: &excluded });
        assert_eq!(count_with_program(&region.program_with_versions(&graph, &plan), &ids, &walks, u64::MAX), expected, "seed {seed}");

        let paths: Vec<_> = ids.iter().map(|id| plan.numbering.path(&plan.dag, *id).unwrap()).collect();
        let weights = probe_costs(&plan.dag, &graph, &frequencies);
        for (scheme, ways) in [(NumberingScheme::Ppp, &mut preferential), (NumberingScheme::Pspp, &mut selective)] {
            let (numbered, options) = ((&plan.dag, &plan.numbering), NumberOptions::default());
            let (ending, increments) =
                map_register_to_listed_counters(scheme, numbered, &paths, &weights, &options, &VerifyBudget::default()).unwrap();
            let own = Plan { probes: Probes::from_increments(increments), ..plan.clone() };
            let program = ProbeProgram::from_preferential(&graph, &own, ending.clone(), ids.iter().copied().collect());
            let mask = ending.identity_mask().unwrap();
            assert_eq!(count_with_program(&program, &ids, &walks, mask), expected, "seed {seed} {scheme:?}");
            verify_counts(&program, &WalkBudget::default()).unwrap_or_else(|fault| panic!("seed {seed} {scheme:?}: {fault}"));
            ways.add(&own, &ending, expected.keys());
        }
        untested += expected.len();
    }
    assert!(graphs > 2_000 && untested > 2_000, "{graphs} graphs, {untested} untested paths");
    assert!(preferential.out_of_range > 200 && preferential.other_path > 200, "{preferential:?}");
    // PSPP is precise: no other path has the number of a tested one.
    assert!(selective.out_of_range > 200 && selective.other_path == 0, "{selective:?}");
    // Some untested paths consist of edges of tested paths, and have separate numbers.
    assert!(selective.own_number > 200, "{selective:?}");
}
