//! Random properties of graphs, like those that a backend provides.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::BlockProperties;
use trodden_flow::{Edge, Graph, Node};
use trodden_testkit::Random;

/// Draws random frequencies that favour back edges, so that loops iterate often.
pub fn frequencies(random: &mut Random, graph: &Graph) -> Frequencies {
    let mut weight = |e: Edge| random.below(40) * if graph.to(e) <= graph.from(e) { 20 } else { 1 };
    let weights: Vec<f64> = graph.edges().map(|e| weight(e) as f64).collect();
    Frequencies::estimate(graph, &weights)
}

/// Draws random properties of blocks.
pub fn blocks(random: &mut Random, graph: &Graph) -> BlockProperties {
    let open: Vec<bool> = graph.edges().map(|_| random.chance(90)).collect();
    let can_be_early = |n: Node| n != graph.entry() && graph.incoming(n).iter().all(|e| open[e.index()]);
    BlockProperties {
        quiet: graph.nodes().map(|_| random.chance(85)).collect(),
        must_count_early: graph.nodes().map(|n| can_be_early(n) && random.chance(10)).collect(),
        carries_code_for_free: graph.edges().map(|_| random.chance(50)).collect(),
        sizes: graph.nodes().map(|_| 1 + random.below(9) as u32).collect(),
        can_carry_code: open,
        changes_version: BTreeSet::new(),
        trip_counts: BTreeMap::new(),
        counted: graph.edges().filter(|_| random.chance(20)).collect(),
    }
}
