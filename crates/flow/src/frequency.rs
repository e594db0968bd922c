//! Execution frequencies of edges per call of the function, measured or estimated from branch probabilities.
//!
//! Source: Wu and Larus, "Static branch frequency and program profile analysis" (MICRO 1994). Frequencies are propagated along the edges,
//! and the frequency that enters a loop's head is multiplied by 1 / (1 - probability of another iteration). Innermost loops are processed
//! first, each within its own nodes. Retreating edges of irreducible regions count as back edges. O(blocks * loop depth).

use crate::graph::{Edge, Graph, Node, postorder};
use std::collections::{HashMap, HashSet};

/// Maximum estimated number of a loop's iterations per entry. If this is 64, three benchmark programs execute 0 to 0.1% more instructions
/// (docs/benchmarks/constants.md).
const MAX_ESTIMATED_ITERATIONS: f64 = 4096.0;

/// Static information about how often an edge is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BranchHint {
    /// No information.
    None,
    /// The weight that the compiler gave to the edge, relative to the other out-edges of its tail.
    Weight(f64),
    /// The edge is rarely taken: it leads to a call that does not return, or is the unwind edge of a call.
    Cold,
    /// Control never takes the edge, which only represents an event in its tail, such as a call that may not return.
    Never,
}

/// Computes weights for [`Frequencies::estimate`] from hints and loops. An edge that leaves its loop has weight 1, any other edge 31 (as
/// LLVM assumes), and a cold edge 2^-20. If the compiler gave weights to some out-edges of a node, the others are cold.
///
/// With 7 instead of 31, three benchmark programs execute 0.3% fewer to 0.8% more instructions; with 127, 0 to 0.8% more. 2^-10 instead of
/// 2^-20 makes no difference (docs/benchmarks/constants.md).
pub fn branch_weights(graph: &Graph, hints: &[BranchHint]) -> Vec<f64> {
    const STAY_IN_LOOP_WEIGHT: f64 = 31.0;
    const COLD_EDGE_WEIGHT: f64 = 1.0 / 1048576.0;
    let order = ReversePostorder::from_graph(graph);
    let loops = GraphLoops::new(graph, &order);
    let mut weights = vec![0.0; graph.edge_count()];
    for node in graph.nodes() {
        let out = graph.out(node);
        let hinted = out.iter().any(|e| matches!(hints[e.index()], BranchHint::Weight(_)));
        for &edge in out {
            weights[edge.index()] = match hints[edge.index()] {
                BranchHint::Weight(weight) => weight.max(COLD_EDGE_WEIGHT),
                BranchHint::Never => 0.0,
                BranchHint::Cold => COLD_EDGE_WEIGHT,
                BranchHint::None if hinted => COLD_EDGE_WEIGHT,
                BranchHint::None if loops.leaves_loop(node, graph.to(edge)) => 1.0,
                BranchHint::None => STAY_IN_LOOP_WEIGHT,
            };
        }
    }
    weights
}

/// Returns the head of the innermost loop around each node, or `None` for a node outside of all loops.
pub fn innermost_loops(graph: &Graph) -> Vec<Option<Node>> {
    GraphLoops::new(graph, &ReversePostorder::from_graph(graph)).innermost
}

struct GraphLoops {
    /// The nodes of each loop, by its head.
    bodies: HashMap<Node, HashSet<Node>>,
    innermost: Vec<Option<Node>>,
}

impl GraphLoops {
    fn new(graph: &Graph, order: &ReversePostorder) -> GraphLoops {
        let mut loops = GraphLoops { bodies: HashMap::new(), innermost: vec![None; graph.node_count()] };
        // Reverse postorder visits outer heads first, so inner heads overwrite them.
        for &head in &order.nodes {
            if let Some(body) = find_loop_body(graph, order, head) {
                body.iter().for_each(|n| loops.innermost[n.index()] = Some(head));
                loops.bodies.insert(head, body.into_iter().collect());
            }
        }
        loops
    }

    fn leaves_loop(&self, from: Node, to: Node) -> bool {
        self.innermost[from.index()].is_some_and(|head| !self.bodies[&head].contains(&to))
    }
}

/// Frequencies of the nodes and edges of a graph, relative to the entry.
#[derive(Clone, Debug)]
pub struct Frequencies {
    nodes: Vec<f64>,
    edges: Vec<f64>,
}

impl Frequencies {
    /// Creates frequencies from measured numbers of executions, one for each edge.
    pub fn from_measured_counts(graph: &Graph, edges: Vec<f64>) -> Frequencies {
        let into = |n: Node| graph.incoming(n).iter().map(|e| edges[e.index()]).sum::<f64>();
        let out = |n: Node| graph.out(n).iter().map(|e| edges[e.index()]).sum::<f64>();
        let nodes = graph.nodes().map(|n| into(n).max(out(n))).collect();
        Frequencies { nodes, edges }
    }

    /// Estimates frequencies from `weights`, one for each edge. The probability of an out-edge is its weight divided by the sum of the
    /// node's weights. If all weights of a node are zero, its out-edges are equally likely.
    pub fn estimate(graph: &Graph, weights: &[f64]) -> Frequencies {
        let order = ReversePostorder::from_graph(graph);
        let probability = branch_probabilities(graph, weights);
        let mut repeat_probability = vec![0.0; graph.node_count()];
        for &head in order.nodes.iter().rev() {
            if let Some(body) = find_loop_body(graph, &order, head) {
                let local = propagate_frequency(graph, &order, &probability, &repeat_probability, head, Some(&body));
                let back: f64 = order.back_edges(graph, head).map(|e| local[graph.from(e).index()] * probability[e.index()]).sum();
                repeat_probability[head.index()] = back.min(1.0 - 1.0 / MAX_ESTIMATED_ITERATIONS);
            }
        }
        let nodes = propagate_frequency(graph, &order, &probability, &repeat_probability, graph.entry(), None);
        let edges = graph.edges().map(|e| nodes[graph.from(e).index()] * probability[e.index()]).collect();
        Frequencies { nodes, edges }
    }

    /// Returns how often a node is executed per call.
    pub fn node(&self, node: Node) -> f64 {
        self.nodes[node.index()]
    }

    /// Returns how often an edge is executed per call.
    pub fn edge(&self, edge: Edge) -> f64 {
        self.edges[edge.index()]
    }

    /// Returns how often each edge is executed per call, by edge number.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }
}

struct ReversePostorder {
    nodes: Vec<Node>,
    position: Vec<u32>,
}

impl ReversePostorder {
    fn from_graph(graph: &Graph) -> ReversePostorder {
        let next = |node: usize| graph.out(Node(node as u32)).iter().map(|edge| graph.to(*edge).index());
        let order = postorder(graph.entry().index(), &mut vec![false; graph.node_count()], next);
        let nodes: Vec<Node> = order.into_iter().rev().map(|node| Node(node as u32)).collect();
        let mut position = vec![u32::MAX; graph.node_count()];
        for (i, node) in nodes.iter().enumerate() {
            position[node.index()] = i as u32;
        }
        ReversePostorder { nodes, position }
    }

    fn is_reached(&self, node: Node) -> bool {
        self.position[node.index()] != u32::MAX
    }

    fn is_retreating(&self, from: Node, to: Node) -> bool {
        self.is_reached(from) && self.position[to.index()] <= self.position[from.index()]
    }

    fn back_edges<'a>(&'a self, graph: &'a Graph, head: Node) -> impl Iterator<Item = Edge> + 'a {
        graph.incoming(head).iter().copied().filter(move |e| self.is_retreating(graph.from(*e), head))
    }
}

fn branch_probabilities(graph: &Graph, weights: &[f64]) -> Vec<f64> {
    let mut probability = vec![0.0; graph.edge_count()];
    for node in graph.nodes() {
        let out = graph.out(node);
        let sum: f64 = out.iter().map(|e| weights[e.index()]).sum();
        for &edge in out {
            probability[edge.index()] = if sum > 0.0 { weights[edge.index()] / sum } else { 1.0 / out.len() as f64 };
        }
    }
    probability
}

/// Returns the nodes of the loop with the given head, in reverse postorder, or `None` if the node is not a loop head.
fn find_loop_body(graph: &Graph, order: &ReversePostorder, head: Node) -> Option<Vec<Node>> {
    let mut stack: Vec<Node> = order.back_edges(graph, head).map(|e| graph.from(e)).collect();
    if stack.is_empty() {
        return None;
    }
    let mut region = HashSet::from([head]);
    let mut body = vec![head];
    while let Some(node) = stack.pop() {
        // In an irreducible region, the search could leave the loop through a second entry. It is therefore restricted to nodes after the
        // head.
        if order.position[node.index()] > order.position[head.index()] && region.insert(node) {
            body.push(node);
            stack.extend(graph.incoming(node).iter().map(|e| graph.from(*e)).filter(|n| order.is_reached(*n)));
        }
    }
    body.sort_by_key(|n| order.position[n.index()]);
    Some(body)
}

/// Propagates a frequency of 1 from `start` along the forward edges. If `within` is given, it has the nodes of the loop whose head is
/// `start`, and only these nodes are visited. At the head of any other loop, the frequency is multiplied by the expected number of
/// iterations.
fn propagate_frequency(
    graph: &Graph,
    order: &ReversePostorder,
    probability: &[f64],
    repeat_probability: &[f64],
    start: Node,
    within: Option<&[Node]>,
) -> Vec<f64> {
    let mut frequency = vec![0.0; graph.node_count()];
    frequency[start.index()] = 1.0;
    for &node in within.unwrap_or(&order.nodes) {
        let is_start_head = within.is_some() && node == start;
        if !is_start_head {
            frequency[node.index()] /= 1.0 - repeat_probability[node.index()];
        }
        for &edge in graph.out(node) {
            if !order.is_retreating(node, graph.to(edge)) {
                frequency[graph.to(edge).index()] += frequency[node.index()] * probability[edge.index()];
            }
        }
    }
    frequency
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: u32, edges: &[(u32, u32)]) -> Graph {
        Graph::new(nodes, Node(0), Node(nodes - 1), edges.iter().map(|&(a, b)| (Node(a), Node(b))).collect()).unwrap()
    }

    #[test]
    fn nested_loops_multiply_frequencies() {
        // Two nested loops: node 2 repeats itself with probability 0.9 and returns to the outer head, node 1, with probability 0.075.
        let g = graph(4, &[(0, 1), (1, 2), (2, 2), (2, 1), (2, 3)]);
        let f = Frequencies::estimate(&g, &[1.0, 1.0, 0.9, 0.075, 0.025]);
        assert!((f.node(Node(1)) - 4.0).abs() < 1e-9, "{f:?}");
        assert!((f.node(Node(2)) - 40.0).abs() < 1e-9, "{f:?}");
        assert!((f.node(Node(3)) - 1.0).abs() < 1e-9, "{f:?}");
    }

    #[test]
    fn endless_and_irreducible_loops_stay_finite() {
        let g = graph(5, &[(0, 1), (0, 2), (1, 2), (2, 1), (3, 4)]);
        let f = Frequencies::estimate(&g, &[1.0; 5]);
        assert!(f.edges().iter().all(|x| x.is_finite()));
        assert!(f.node(Node(1)) > 1.0);
        assert_eq!(f.node(Node(4)), 0.0);
    }
}
