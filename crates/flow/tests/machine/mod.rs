//! Random properties of graphs, like those that a backend provides.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::BlockProperties;
use trodden_flow::{Edge, EdgeSet, Graph, Node, NodeSet};
use trodden_testkit::Random;

/// Draws random frequencies that favour back edges, so that loops iterate often.
pub fn random_frequencies(random: &mut Random, graph: &Graph) -> Frequencies {
    let mut weight = |e: Edge| random.below(40) * if graph.to(e) <= graph.from(e) { 20 } else { 1 };
    let weights: Vec<f64> = graph.edges().map(|e| weight(e) as f64).collect();
    Frequencies::estimate(graph, &weights)
}

pub fn random_block_properties(random: &mut Random, graph: &Graph) -> BlockProperties {
    let (nodes, edges) = (graph.node_count(), graph.edge_count());
    let open = EdgeSet::from_fn(edges, |_| random.chance(90));
    let can_be_early = |n: Node| n != graph.entry() && graph.incoming(n).iter().all(|e| open.contains(*e));
    BlockProperties {
        quiet: NodeSet::from_fn(nodes, |_| random.chance(85)),
        must_count_early: NodeSet::from_fn(nodes, |n| can_be_early(n) && random.chance(10)),
        carries_code_for_free: EdgeSet::from_fn(edges, |_| random.chance(50)),
        sizes: graph.nodes().map(|_| 1 + random.below(9) as u32).collect(),
        can_carry_code: open,
        changes_version: BTreeSet::new(),
        trip_counts: BTreeMap::new(),
        counted: graph.edges().filter(|_| random.chance(20)).collect(),
    }
}
