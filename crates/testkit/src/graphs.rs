//! Random directed multigraphs. They can have parallel edges, self-loops, dead ends and unreachable nodes, as well as edges that lead to
//! the entry or leave the exit.

use crate::random::Random;
use trodden_flow::dag::Entries;
use trodden_flow::plan::PlanOptions;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Graph, Node};

/// Says whether a random graph may have cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleKind {
    /// The graph has no cycles: each edge leads from a lower to a higher node number.
    None,
    /// Yes: edges lead anywhere.
    Some,
}

/// Generates a graph. It has 2 to `nodes` nodes and at most `edges` edges.
pub fn graph(random: &mut Random, nodes: u32, edges: u32, cycles: CycleKind) -> Graph {
    let nodes = 2 + random.below(u64::from(nodes) - 1) as u32;
    let count = random.below(u64::from(edges) + 1);
    let exit = match cycles {
        CycleKind::Some if random.chance(10) => 1 + random.below(u64::from(nodes) - 1) as u32,
        _ => nodes - 1,
    };
    let mut list = Vec::new();
    for _ in 0..count {
        let (a, b) = (random.below(nodes.into()) as u32, random.below(nodes.into()) as u32);
        match cycles {
            CycleKind::None if a == b => {}
            CycleKind::None => list.push((Node(a.min(b)), Node(a.max(b)))),
            // Real functions have few edges to the entry and few edges out of the exit.
            CycleKind::Some if (b == 0 || a == exit) && !random.chance(10) => {}
            CycleKind::Some => list.push((Node(a), Node(b))),
        }
    }
    Graph::new(nodes, Node(0), Node(exit), list).expect("the nodes exist")
}

/// Chooses random edges that must be cut, so that a path ends there. Edges to the exit are never chosen.
pub fn forced_cuts(random: &mut Random, graph: &Graph) -> Vec<(Edge, CutReason)> {
    let percent = random.pick(&[0, 0, 10, 30]);
    graph.edges().filter(|e| graph.to(*e) != graph.exit() && random.chance(percent)).map(|e| (e, CutReason::Unsplittable)).collect()
}

/// Chooses random options for planning the instrumentation of a function.
pub fn plan_options(random: &mut Random) -> PlanOptions {
    PlanOptions {
        max_paths: random.pick(&[1, 3, 8, 20, 60, 1 << 20]),
        entries: random.pick(&[Entries::PerEdge, Entries::Shared]),
        chords: random.chance(70),
        hot_first: random.chance(25),
    }
}

/// Returns all paths of an acyclic graph from its entry to its exit. Returns `None` if more than `limit` paths are found before the search
/// is complete.
pub fn all_paths(dag: &Dag, limit: usize) -> Option<Vec<Vec<DagEdgeId>>> {
    let mut paths = Vec::new();
    let mut stack = vec![(dag.entry(), Vec::new())];
    while let Some((node, path)) = stack.pop() {
        if paths.len() > limit {
            return None;
        }
        if node == dag.exit() {
            paths.push(path);
            continue;
        }
        for (i, edge) in dag.edges().iter().enumerate().filter(|(_, e)| e.from == node) {
            let mut longer = path.clone();
            longer.push(DagEdgeId(i as u32));
            stack.push((edge.to, longer));
        }
    }
    Some(paths)
}
