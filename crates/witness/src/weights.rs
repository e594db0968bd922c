//! The cost of each witness in a run, which is its number of executions.
//!
//! Frequencies inside a function come from measured executions of its edges, or are estimated (Wu and Larus, [`trodden_flow::frequency`]).
//! Calls to functions are estimated along the call graph, callers first; a recursive component multiplies the calls from outside by a
//! constant. O(nodes + edges + calls).

use super::program::{StartPoint, Witness, WitnessFunction, WitnessFunctionId, WitnessKind, WitnessProgram};
use super::sets::{Adjacency, components};
use std::collections::HashMap;
use trodden_flow::frequency::{BranchHint, Frequencies, branch_weights, innermost_loops};
use trodden_flow::graph::{Edge, Node};

/// Assumed number of calls to a function in a recursive component for each call from outside. If this is 2, the slowest of four planned
/// runs of each of three benchmark programs records 0.67 to 1.07 times as many executions; if it is 64, 0.81 to 1.64 times as many
/// (docs/benchmarks/constants.md).
const ASSUMED_CALLS_PER_RECURSIVE_CALL: f64 = 8.0;
/// Maximum estimated number of calls, so that sums of many remain precise enough to be compared.
const MAX_ESTIMATED_CALLS: f64 = 1e15;

/// What is known about how often a function's edges are executed.
#[derive(Clone, Debug)]
pub enum EdgeWeights {
    /// Number of executions in a whole run.
    PerRun(Vec<f64>),
    /// Relative weights of the out-edges of each node, for example from a compiler's map.
    PerBranch(Vec<f64>),
    /// Nothing is known.
    Unknown,
}

/// Number of executions per run of each node and edge.
#[derive(Clone, Debug)]
pub struct Weights {
    nodes: Vec<f64>,
    edges: Vec<f64>,
}

impl Weights {
    /// Estimates all weights.
    pub fn estimate(program: &WitnessProgram) -> Weights {
        Weights::new(program, &vec![EdgeWeights::Unknown; program.functions().len()])
    }

    /// Computes weights from the known facts about each function, listed in the order of the functions. Lists of the wrong length are
    /// ignored.
    pub fn new(program: &WitnessProgram, known: &[EdgeWeights]) -> Weights {
        let one = |(function, known): (&WitnessFunction, &EdgeWeights)| frequencies(function, known);
        let of: Vec<Frequencies> = program.functions().iter().zip(known).map(one).collect();
        let calls = estimate_calls(program, known, &of);
        let mut weights = Weights { nodes: Vec::new(), edges: Vec::new() };
        for ((function, frequencies), calls) in program.functions().iter().zip(&of).zip(&calls) {
            weights.nodes.extend(function.graph.nodes().map(|n| frequencies.node(n).max(isolated_entry_frequency(function, n)) * calls));
            weights.edges.extend(frequencies.edges().iter().map(|e| e * calls));
        }
        weights
    }

    /// Creates weights from the executions per run of all nodes and edges, which are numbered like witnesses.
    pub fn from_executions(nodes: Vec<f64>, edges: Vec<f64>) -> Weights {
        Weights { nodes, edges }
    }

    /// Corrects the weights with the measured executions of some nodes; the [`nodes_whose_counts_correct_weights`] suffice. A node that was
    /// not measured gets the executions of its innermost loop's head, or else of its function's entry, times the ratio of the two in the
    /// uncorrected weights. If neither was measured, it keeps its weight.
    pub fn corrected(&self, program: &WitnessProgram, measured: &HashMap<Witness, f64>) -> Weights {
        let (mut nodes, mut edges) = (self.nodes.clone(), self.edges.clone());
        for f in program.function_ids() {
            let graph = &program.function(f).graph;
            let innermost = innermost_loops(graph);
            for node in graph.nodes() {
                let at = |n: Node| program.node_witness(f, n);
                let known = |n: &Node| measured.contains_key(&at(*n)) && self.nodes[at(*n).index()] > 0.0;
                let head = [Some(node), innermost[node.index()], Some(graph.entry())].into_iter().flatten().find(known);
                let Some(head) = head.map(at) else { continue };
                let factor = measured[&head] / self.nodes[head.index()];
                nodes[at(node).index()] *= factor;
                graph.out(node).iter().for_each(|e| edges[program.edge_witness(f, *e).index()] *= factor);
            }
        }
        Weights { nodes, edges }
    }

    /// Returns the cost of a witness in a run: its executions.
    pub fn cost(&self, kind: WitnessKind, witness: Witness) -> f64 {
        match kind {
            WitnessKind::Nodes => self.nodes[witness.index()],
            WitnessKind::Edges => self.edges[witness.index()],
        }
    }

    /// Returns how often a node is executed per run.
    pub fn node(&self, program: &WitnessProgram, function: WitnessFunctionId, node: Node) -> f64 {
        self.nodes[program.node_witness(function, node).index()]
    }

    /// Returns how often an edge is executed per run.
    pub fn edge(&self, program: &WitnessProgram, function: WitnessFunctionId, edge: Edge) -> f64 {
        self.edges[program.edge_witness(function, edge).index()]
    }

    /// Returns the total cost of witnesses.
    pub fn sum(&self, kind: WitnessKind, witnesses: &[Witness]) -> f64 {
        witnesses.iter().map(|w| self.cost(kind, *w)).sum()
    }
}

/// Returns the entries of all functions and the heads of their loops: executions measured there correct all others.
pub fn nodes_whose_counts_correct_weights(program: &WitnessProgram) -> Vec<Witness> {
    let of = |f: WitnessFunctionId| {
        let graph = &program.function(f).graph;
        let mut heads: Vec<Node> = innermost_loops(graph).into_iter().flatten().chain([graph.entry()]).collect();
        heads.sort_unstable();
        heads.dedup();
        heads.into_iter().map(move |n| program.node_witness(f, n))
    };
    program.function_ids().flat_map(of).collect()
}

/// Returns 1 for the entry of a function that consists of a single node without edges, because edges do not give its frequency; otherwise
/// 0.
fn isolated_entry_frequency(function: &WitnessFunction, node: Node) -> f64 {
    let lonely = function.graph.incoming(node).is_empty() && function.graph.out(node).is_empty();
    if lonely && node == function.graph.entry() { 1.0 } else { 0.0 }
}

fn frequencies(function: &WitnessFunction, known: &EdgeWeights) -> Frequencies {
    let graph = &function.graph;
    match known {
        EdgeWeights::PerRun(weights) if weights.len() == graph.edge_count() => Frequencies::from_measured_counts(graph, weights.clone()),
        EdgeWeights::PerBranch(weights) if weights.len() == graph.edge_count() => Frequencies::estimate(graph, weights),
        _ => Frequencies::estimate(graph, &branch_weights(graph, &vec![BranchHint::None; graph.edge_count()])),
    }
}

/// Returns the factor by which the frequencies of each function are multiplied: 1 if its edge executions are known per run, otherwise the
/// estimated number of its calls per run.
fn estimate_calls(program: &WitnessProgram, known: &[EdgeWeights], of: &[Frequencies]) -> Vec<f64> {
    let count = program.functions().len();
    let per_run = |f: WitnessFunctionId| matches!(known[f.index()], EdgeWeights::PerRun(_));
    let pairs: Vec<(u32, u32)> = program.function_ids().flat_map(|f| callees(program, f).map(move |(_, g, _)| (f.0, g.0))).collect();
    let component = components(&Adjacency::new(count, &pairs));
    let mut calls = vec![0.0f64; count];
    match program.start() {
        StartPoint::Main(main) => calls[main.index()] = 1.0,
        StartPoint::Outside => program.external().iter().for_each(|f| calls[f.index()] = 1.0),
    }
    // Components of callers have higher numbers than components of callees.
    let mut order: Vec<WitnessFunctionId> = program.function_ids().collect();
    order.sort_by_key(|f| std::cmp::Reverse(component[f.index()]));
    for same in order.chunk_by(|a, b| component[a.index()] == component[b.index()]) {
        let region: Vec<_> = same.iter().flat_map(|f| callees(program, *f).map(move |c| (*f, c))).collect();
        let recursive = region.iter().any(|(f, (_, g, _))| component[f.index()] == component[g.index()]);
        if recursive {
            let from_outside: f64 = same.iter().map(|f| calls[f.index()]).sum();
            same.iter().for_each(|f| calls[f.index()] = (from_outside * ASSUMED_CALLS_PER_RECURSIVE_CALL).min(MAX_ESTIMATED_CALLS));
        }
        for (caller, (node, callee, part)) in region {
            if component[caller.index()] != component[callee.index()] {
                let entered = if per_run(caller) { 1.0 } else { calls[caller.index()] };
                let more = of[caller.index()].node(node) * entered * part;
                calls[callee.index()] = (calls[callee.index()] + more).min(MAX_ESTIMATED_CALLS);
            }
        }
    }
    program.function_ids().map(|f| if per_run(f) { 1.0 } else { calls[f.index()] }).collect()
}

/// Returns the calls of a function: node, callee, and the callee's assumed share of the call's executions.
fn callees(program: &WitnessProgram, function: WitnessFunctionId) -> impl Iterator<Item = (Node, WitnessFunctionId, f64)> + '_ {
    program.function(function).calls.iter().flat_map(|(node, call)| {
        let part = 1.0 / (call.callees.len() + usize::from(call.opaque.is_some())) as f64;
        call.callees.iter().map(move |callee| (*node, *callee, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_flow::graph::Graph;

    /// Node 0 leads to a loop of 1, 2 and 3, in which 2 is on only one side of a branch; then comes 4.
    fn looping_program() -> WitnessProgram {
        let edges = [(0, 1), (1, 2), (1, 3), (2, 3), (3, 1), (3, 4)].map(|(a, b)| (Node(a), Node(b)));
        let graph = Graph::new(5, Node(0), Node(4), edges.to_vec()).unwrap();
        WitnessProgram::new(vec![WitnessFunction::new("f", graph)], StartPoint::Main(WitnessFunctionId(0)), Vec::new()).unwrap()
    }

    #[test]
    fn measured_loop_heads_correct_all_nodes() {
        let program = looping_program();
        let weights = Weights::estimate(&program);
        let of: Vec<Node> = nodes_whose_counts_correct_weights(&program).iter().map(|w| Node(w.0)).collect();
        assert_eq!(of, [Node(0), Node(1)]);
        let measured = HashMap::from([(Witness(0), 10.0), (Witness(1), 5000.0)]);
        let corrected = weights.corrected(&program, &measured);
        let cost = |n: u32| corrected.cost(WitnessKind::Nodes, Witness(n));
        assert_eq!((cost(0), cost(1), cost(4)), (10.0, 5000.0, 10.0));
        let share = weights.cost(WitnessKind::Nodes, Witness(2)) / weights.cost(WitnessKind::Nodes, Witness(1));
        assert!((cost(2) - 5000.0 * share).abs() < 1e-6 && share < 1.0, "{} {share}", cost(2));
        // Code that is never executed has no cost.
        let never = weights.corrected(&program, &HashMap::from([(Witness(0), 0.0)]));
        assert!((0..5).all(|n| never.cost(WitnessKind::Nodes, Witness(n)) == 0.0));
    }
}
