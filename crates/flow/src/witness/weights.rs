//! What each witness costs in a run: how often it is executed, times what its probe costs at its site.
//!
//! Frequencies inside a function come from measured executions of its edges, or are estimated (Wu and Larus, [`crate::frequency`]). How
//! often functions are called is estimated along the call graph, callers first; a recursive component multiplies its callers' calls by a
//! constant. O(nodes + edges + calls).

use super::program::{Function, FunctionId, Program, Start, Witness, WitnessKind};
use super::sets::{Lists, components};
use crate::frequency::{Frequencies, Hint, branch_weights};
use crate::graph::{Edge, Node};

/// A function of a recursive component is assumed to be called this many times for each call from outside of the component.
const RECURSION: f64 = 8.0;
/// No function is assumed to be called more often.
const MOST_CALLS: f64 = 1e15;

/// Executions of a function's edges, from wherever they are known.
#[derive(Clone, Debug)]
pub enum EdgeWeights {
    /// Executions in a whole run.
    PerRun(Vec<f64>),
    /// Relative weights of the edges out of each node: of a compiler's map, for example.
    PerBranch(Vec<f64>),
    /// Nothing is known.
    Unknown,
}

/// Executions per run of all nodes and edges, and what a probe on each costs.
#[derive(Clone, Debug)]
pub struct Weights {
    nodes: Vec<f64>,
    edges: Vec<f64>,
    site_costs: Option<Vec<f64>>,
}

impl Weights {
    /// Estimates where nothing was measured.
    pub fn estimate(program: &Program) -> Weights {
        Weights::new(program, &vec![EdgeWeights::Unknown; program.functions().len()])
    }

    /// Weights from what is known of each function, in their order. Lists that are not as long as the function has edges count as unknown.
    pub fn new(program: &Program, known: &[EdgeWeights]) -> Weights {
        let one = |(function, known): (&Function, &EdgeWeights)| frequencies(function, known);
        let of: Vec<Frequencies> = program.functions().iter().zip(known).map(one).collect();
        let calls = calls(program, known, &of);
        let mut weights = Weights { nodes: Vec::new(), edges: Vec::new(), site_costs: None };
        for ((function, frequencies), calls) in program.functions().iter().zip(&of).zip(&calls) {
            weights.nodes.extend(function.graph.nodes().map(|n| frequencies.node(n).max(at_ends(function, n)) * calls));
            weights.edges.extend(frequencies.edges().iter().map(|e| e * calls));
        }
        weights
    }

    /// Weights from executions per run of nodes and edges, each numbered as witnesses are.
    pub fn from_executions(nodes: Vec<f64>, edges: Vec<f64>) -> Weights {
        Weights { nodes, edges, site_costs: None }
    }

    /// What a probe costs on each node or edge, in any unit, numbered as witnesses are.
    pub fn with_site_costs(mut self, costs: Vec<f64>) -> Weights {
        self.site_costs = Some(costs);
        self
    }

    /// What a witness costs in a run.
    pub fn cost(&self, kind: WitnessKind, witness: Witness) -> f64 {
        let executions = match kind {
            WitnessKind::Nodes => self.nodes[witness.index()],
            WitnessKind::Edges => self.edges[witness.index()],
        };
        executions * self.site_costs.as_ref().and_then(|c| c.get(witness.index())).copied().unwrap_or(1.0)
    }

    /// What the cheapest probe costs per execution; 1 where all cost the same.
    pub fn cheapest_probe(&self) -> f64 {
        let least = self.site_costs.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        if least.is_finite() { least.min(1.0) } else { 1.0 }
    }

    /// Executions of a node per run.
    pub fn node(&self, program: &Program, function: FunctionId, node: Node) -> f64 {
        self.nodes[program.node_witness(function, node).index()]
    }

    /// Executions of an edge per run.
    pub fn edge(&self, program: &Program, function: FunctionId, edge: Edge) -> f64 {
        self.edges[program.edge_witness(function, edge).index()]
    }

    /// What some witnesses cost together.
    pub fn sum(&self, kind: WitnessKind, witnesses: &[Witness]) -> f64 {
        witnesses.iter().map(|w| self.cost(kind, *w)).sum()
    }
}

/// A function with one node that is executed has an entry without in-edges, whose edges say nothing.
fn at_ends(function: &Function, node: Node) -> f64 {
    let lonely = function.graph.incoming(node).is_empty() && function.graph.out(node).is_empty();
    if lonely && node == function.graph.entry() { 1.0 } else { 0.0 }
}

fn frequencies(function: &Function, known: &EdgeWeights) -> Frequencies {
    let graph = &function.graph;
    match known {
        EdgeWeights::PerRun(weights) if weights.len() == graph.edge_count() => Frequencies::measured(graph, weights.clone()),
        EdgeWeights::PerBranch(weights) if weights.len() == graph.edge_count() => Frequencies::estimate(graph, weights),
        _ => Frequencies::estimate(graph, &branch_weights(graph, &vec![Hint::None; graph.edge_count()])),
    }
}

/// How often each function is called in a run; 1 where its edges are known per run already.
fn calls(program: &Program, known: &[EdgeWeights], of: &[Frequencies]) -> Vec<f64> {
    let count = program.functions().len();
    let per_run = |f: FunctionId| matches!(known[f.index()], EdgeWeights::PerRun(_));
    let pairs: Vec<(u32, u32)> = program.function_ids().flat_map(|f| callees(program, f).map(move |(_, g, _)| (f.0, g.0))).collect();
    let component = components(&Lists::new(count, &pairs));
    let mut calls = vec![0.0f64; count];
    match program.start() {
        Start::Main(main) => calls[main.index()] = 1.0,
        Start::Outside => program.external().iter().for_each(|f| calls[f.index()] = 1.0),
    }
    // Callers have higher numbers of components than callees.
    let mut order: Vec<FunctionId> = program.function_ids().collect();
    order.sort_by_key(|f| std::cmp::Reverse(component[f.index()]));
    for same in order.chunk_by(|a, b| component[a.index()] == component[b.index()]) {
        let inside: Vec<_> = same.iter().flat_map(|f| callees(program, *f).map(move |c| (*f, c))).collect();
        let recursive = inside.iter().any(|(f, (_, g, _))| component[f.index()] == component[g.index()]);
        if recursive {
            let from_outside: f64 = same.iter().map(|f| calls[f.index()]).sum();
            same.iter().for_each(|f| calls[f.index()] = (from_outside * RECURSION).min(MOST_CALLS));
        }
        for (caller, (node, callee, part)) in inside {
            if component[caller.index()] != component[callee.index()] {
                let entered = if per_run(caller) { 1.0 } else { calls[caller.index()] };
                let more = of[caller.index()].node(node) * entered * part;
                calls[callee.index()] = (calls[callee.index()] + more).min(MOST_CALLS);
            }
        }
    }
    program.function_ids().map(|f| if per_run(f) { 1.0 } else { calls[f.index()] }).collect()
}

/// The calls of a function: node, callee, and how many of the call's executions are its.
fn callees(program: &Program, function: FunctionId) -> impl Iterator<Item = (Node, FunctionId, f64)> + '_ {
    program.function(function).calls.iter().flat_map(|(node, call)| {
        let part = 1.0 / (call.callees.len() + usize::from(call.opaque.is_some())) as f64;
        call.callees.iter().map(move |callee| (*node, *callee, part))
    })
}
