//! What a backend might say of a graph, and what plans and programs count on walks.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::Action;
use trodden_flow::program::BlockProperties;
use trodden_flow::{Edge, Graph, Node};
use trodden_testkit::Random;

/// A register and counts, as a plan's actions change them.
#[derive(Default)]
pub struct Planned {
    /// The path register.
    pub register: i64,
    /// By index.
    pub counts: BTreeMap<i64, u64>,
}

impl Planned {
    /// Does what a plan says.
    pub fn act(&mut self, action: Action) {
        match action {
            Action::Add { increment } => self.register += increment,
            Action::Count { increment } => *self.counts.entry(self.register + increment).or_default() += 1,
            Action::CountAndRestart { increment, start } => {
                *self.counts.entry(self.register + increment).or_default() += 1;
                self.register = start;
            }
            Action::Poison { .. } => panic!("nothing is left out"),
            Action::Dead => panic!("a walk took a dead edge"),
        }
    }
}

/// Random frequencies of a graph in which control rather goes back than on, so that loops come round often.
pub fn frequencies(random: &mut Random, graph: &Graph) -> Frequencies {
    let mut weight = |e: Edge| random.below(40) * if graph.to(e) <= graph.from(e) { 20 } else { 1 };
    let weights: Vec<f64> = graph.edges().map(|e| weight(e) as f64).collect();
    Frequencies::estimate(graph, &weights)
}

/// Random properties of blocks.
pub fn blocks(random: &mut Random, graph: &Graph) -> BlockProperties {
    let open: Vec<bool> = graph.edges().map(|_| random.chance(90)).collect();
    let can_be_early = |n: Node| n != graph.entry() && graph.incoming(n).iter().all(|e| open[e.index()]);
    BlockProperties {
        quiet: graph.nodes().map(|_| random.chance(85)).collect(),
        early: graph.nodes().map(|n| can_be_early(n) && random.chance(10)).collect(),
        free: graph.edges().map(|_| random.chance(50)).collect(),
        sizes: graph.nodes().map(|_| 1 + random.below(9) as u32).collect(),
        open,
        crossed: BTreeSet::new(),
        trip_counts: BTreeMap::new(),
        counted: graph.edges().filter(|_| random.chance(20)).collect(),
    }
}
