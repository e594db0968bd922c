//! Precise selective labels of paths across calls, against brute force: every context with every path of small random graphs.
//!
//! A path across calls is a context and a path. Its number has the context in the upper bits, and the path's sum of labels in the lower
//! ones.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::part::precise_selective_labels;
use trodden_flow::program::verify::{WalkBudget, verify_counts, verify_numbering};
use trodden_flow::{Dag, DagEdgeSet, Numbering, Plan, ProbeProgram, Probes};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, graph};

#[test]
fn pairs_of_interesting_paths_have_numbers_that_no_other_pair_has() {
    let (mut fewer, mut programs) = (0, 0);
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let (nodes, edges) = random.pick(&[(5, 8), (8, 16), (12, 22)]);
        let cycles = random.pick(&[CycleKind::None, CycleKind::Some]);
        let graph = graph(&mut random, nodes, edges, cycles);
        // Probe programs end at their exit, so no edge may leave it.
        if !graph.out(graph.exit()).is_empty() {
            continue;
        }
        let dag = Dag::new(&graph, &[], Entries::Shared);
        let Some(paths) = all_paths(&dag, 200).filter(|paths| !paths.is_empty() && !dag.edges().is_empty()) else { continue };
        let numbering = Numbering::ball_larus(&dag).unwrap();
        let share = random.pick(&[5, 20, 60]);
        let chosen: BTreeSet<usize> = (0..paths.len()).filter(|_| random.chance(share)).collect();
        let marked = DagEdgeSet::from_members(dag.edges().len(), chosen.iter().flat_map(|path| &paths[*path]).copied());
        let interesting = dag.edges_on_marked_paths(|edge| marked.contains(edge));
        let labels = precise_selective_labels(&dag, &interesting);
        let weights: Vec<f64> = dag.edge_ids().map(|_| random.below(50) as f64).collect();
        let probes = if random.chance(50) { Probes::direct(&labels) } else { Probes::on_chords(&dag, &labels, &weights) };
        let bits = numbering.paths().next_power_of_two().trailing_zeros();
        let mut pairs: BTreeMap<i64, Vec<(i64, usize)>> = BTreeMap::new();
        for (number, path) in paths.iter().enumerate() {
            let sum: i64 = path.iter().map(|edge| probes.increment(*edge)).sum();
            assert!((0..1 << bits).contains(&sum), "seed {seed}: {sum} reaches into the context");
            (0..4).for_each(|context| pairs.entry(context << bits | sum).or_default().push((context, number)));
        }
        for (context, path) in (0..4).flat_map(|context| chosen.iter().map(move |path| (context, *path))) {
            let sum: i64 = paths[path].iter().map(|edge| probes.increment(*edge)).sum();
            assert_eq!(pairs[&(context << bits | sum)], [(context, path)], "seed {seed}");
        }
        let labelled = |values: &[i64]| values.iter().filter(|value| **value != 0).count();
        fewer += usize::from(labelled(&labels) < labelled(numbering.values()));
        // The program that counts by these sums is also verified.
        let program = ProbeProgram::from_labels(&graph, &Plan { dag, numbering, probes, partial: None, part: None }, interesting);
        verify_numbering(&program).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        verify_counts(&program, &WalkBudget::default()).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        programs += 1;
    }
    assert!(programs > 1_000 && fewer > 300, "{programs} programs, {fewer} with fewer labels");
}
