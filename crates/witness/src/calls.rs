//! What the sequence of calls needs: a program in which only calls and returns are left, so that nothing else has to be distinguished.
//!
//! D. Saha et al. (ESEC/FSE 2013, section 8) name call traces by distributed runs as future work. Here the program is reduced, and
//! everything else is as for whole executions: plans, the pairwise condition, reconstruction. Of a function these nodes stay:
//!
//! - its entry, its exit, nodes with calls of known functions, and with calls of other code that may do more than return;
//! - where control comes by unwinding: frames were left;
//! - nodes without code, and blocks beside them: behind these a function returns, and whether a call is a tail call shows there;
//! - nodes before the entry: without them, a loop to the entry would look like another call of the function.
//!
//! An edge stands for all ways from one such node to the next. Executions of the reduced program are those of the program, without the
//! other nodes; so partial traces of the program are those of the reduced one, as long as witnesses are nodes that stay, and its calls
//! and returns are the program's. Two ways between the same calls need no witness, and loops without calls are not seen at all.
//!
//! O(kept nodes x edges) for each function.

use super::program::{
    NodeKind, Opaque, ProgramCall, Witness, WitnessEdgeKind, WitnessError, WitnessFunction, WitnessFunctionId, WitnessKind, WitnessProgram,
    WitnessSite,
};
use super::weights::Weights;
use std::collections::BTreeSet;
use trodden_flow::graph::{Edge, Graph, Node};

/// A program in which calls and returns are left of another one.
#[derive(Clone, Debug)]
pub struct CallProgram {
    /// The reduced program. Its functions have the numbers that they have in the other one.
    pub program: WitnessProgram,
    /// For each node, numbered as witnesses are, the same node of the other program.
    origin: Vec<Witness>,
}

impl CallProgram {
    /// Reduces a program.
    ///
    /// # Errors
    /// The reduced program is too large: it has fewer nodes, but may have more edges.
    pub fn new(program: &WitnessProgram) -> Result<CallProgram, WitnessError> {
        let (mut functions, mut origin) = (Vec::new(), Vec::new());
        for id in program.function_ids() {
            let function = program.function(id);
            let kept = kept(function);
            origin.extend(kept.iter().map(|node| program.node_witness(id, *node)));
            functions.push(reduced(function, &kept));
        }
        let program = WitnessProgram::new(functions, program.start(), program.external().to_vec())?;
        Ok(CallProgram { program, origin })
    }

    /// The node of the other program that a node is.
    pub fn origin(&self, witness: Witness) -> Witness {
        self.origin[witness.index()]
    }

    /// Weights of the reduced program: its nodes are executed as often as they are in the other one, of which `weights` are. How often
    /// each edge is taken is not known; no more often than both its ends.
    pub fn weights(&self, weights: &Weights) -> Weights {
        let nodes: Vec<f64> = self.origin.iter().map(|node| weights.cost(WitnessKind::Nodes, *node)).collect();
        let of = |function: WitnessFunctionId, node: Node| nodes[self.program.node_witness(function, node).index()];
        let count = self.program.witness_count(WitnessKind::Edges) as u32;
        let edge = |number: u32| match self.program.site(WitnessKind::Edges, Witness(number)) {
            WitnessSite::Edge(function, edge) => {
                let graph = &self.program.function(function).graph;
                of(function, graph.from(edge)).min(of(function, graph.to(edge)))
            }
            WitnessSite::Node(..) => 0.0,
        };
        let edges = (0..count).map(edge).collect();
        Weights::from_executions(nodes, edges)
    }
}

/// Whether a call shows in the sequence of calls: one of other code that only returns does not.
fn shows(call: &ProgramCall) -> bool {
    !call.callees.is_empty() || call.opaque != Some(Opaque::RETURNS)
}

/// The nodes of a function that stay, ascending.
fn kept(function: &WitnessFunction) -> Vec<Node> {
    let graph = &function.graph;
    let is_virtual = |node: Node| function.nodes[node.index()] == NodeKind::Virtual;
    let mut kept = vec![false; graph.node_count()];
    kept[graph.entry().index()] = true;
    kept[graph.exit().index()] = true;
    function.calls.iter().filter(|(_, call)| shows(call)).for_each(|(node, _)| kept[node.index()] = true);
    for edge in graph.edges() {
        let (from, to) = (graph.from(edge), graph.to(edge));
        let is_landing = function.edges[edge.index()] != WitnessEdgeKind::Flow;
        let is_beside = is_virtual(from) || is_virtual(to);
        kept[to.index()] |= is_landing || is_beside;
        kept[from.index()] |= is_beside || to == graph.entry();
    }
    graph.nodes().filter(|node| kept[node.index()]).collect()
}

/// A function of which these nodes are left.
fn reduced(function: &WitnessFunction, kept: &[Node]) -> WitnessFunction {
    let graph = &function.graph;
    let number = |node: Node| kept.binary_search(&node).ok().map(|place| Node(place as u32));
    let new = |node: Node| number(node).expect("it is kept");
    let (mut edges, mut kinds) = (Vec::new(), Vec::new());
    for &from in kept {
        let mut found: BTreeSet<(u32, Node)> = BTreeSet::new();
        for (place, &edge) in (0u32..).zip(graph.out(from)) {
            // What is flow may be one edge; each kind of unwinding has its own, whose target is kept.
            let kind = function.edges[edge.index()];
            let group = if kind == WitnessEdgeKind::Flow { 0 } else { place + 1 };
            for to in next_kept(function, &number, graph.to(edge)) {
                if found.insert((group, to)) {
                    edges.push((new(from), to));
                    kinds.push(kind);
                }
            }
        }
    }
    let nodes = kept.iter().map(|node| function.nodes[node.index()]).collect();
    // Blocks behind a call may be gone: only what was a tail call is to look like one.
    let flow = |edge: &&Edge| function.edges[edge.index()] == WitnessEdgeKind::Flow;
    let is_last = |node: Node| graph.out(node).iter().filter(flow).all(|edge| graph.to(*edge) == graph.exit());
    let call = |(node, call): &(Node, ProgramCall)| {
        Some((number(*node)?, ProgramCall { keeps_frame: call.keeps_frame || !is_last(*node), ..call.clone() }))
    };
    let calls = function.calls.iter().filter_map(call).collect();
    let graph = Graph::new(kept.len() as u32, new(graph.entry()), new(graph.exit()), edges).expect("its nodes exist");
    WitnessFunction { name: function.name.clone(), graph, nodes, edges: kinds, calls }
}

/// The kept nodes that control can come to next at a node, by their new numbers.
fn next_kept(function: &WitnessFunction, number: &dyn Fn(Node) -> Option<Node>, start: Node) -> BTreeSet<Node> {
    let graph = &function.graph;
    let mut seen = vec![false; graph.node_count()];
    let (mut work, mut found) = (vec![start], BTreeSet::new());
    while let Some(node) = work.pop() {
        if std::mem::replace(&mut seen[node.index()], true) {
            continue;
        }
        match number(node) {
            Some(kept) => drop(found.insert(kept)),
            // Nothing unwinds where nothing is called.
            None => {
                work.extend(graph.out(node).iter().filter(|e| function.edges[e.index()] == WitnessEdgeKind::Flow).map(|e| graph.to(*e)))
            }
        }
    }
    found
}
