//! Reduces a program to its calls and returns. If only the call sequence is traced, nothing else has to be distinguished.

use super::program::{
    NodeKind, Opaque, ProgramCall, Witness, WitnessEdgeKind, WitnessError, WitnessFunction, WitnessFunctionId, WitnessKind, WitnessProgram,
    WitnessSite,
};
use super::weights::Weights;
use std::collections::BTreeSet;
use trodden_flow::graph::{Edge, Graph, Node};

/// A program reduced to its calls and returns.
///
/// D. Saha et al. (ESEC/FSE 2013, section 8) mention distributed call traces as future work. On the reduced program, plans, the pairwise
/// condition and reconstruction work as for whole executions. These nodes of a function are kept:
///
/// - its entry and exit, nodes with calls of known functions, and nodes with calls of unknown code that may do more than return;
/// - nodes reached by unwinding, where frames have been left;
/// - nodes without code and their neighbours: a function returns after them, and they determine whether a call is a tail call;
/// - predecessors of the entry: without them, a loop back to the entry would look like a second call of the function.
///
/// An edge represents all paths from one kept node to the next. The executions of the reduced program are the original executions without
/// the other nodes. So a partial trace of the original program is also a partial trace of the reduced program if all witnesses are kept
/// nodes. Alternative paths between the same calls need no witness, and loops without calls disappear. O(kept nodes x edges) for each
/// function.
#[derive(Clone, Debug)]
pub struct CallAndReturnProgram {
    /// The reduced program. Functions keep their numbers.
    pub program: WitnessProgram,
    /// For each node of the reduced program, the original node. Both are given by their witness numbers.
    origin: Vec<Witness>,
}

impl CallAndReturnProgram {
    /// Reduces a program.
    ///
    /// # Errors
    /// The reduced program is too large: it has fewer nodes, but it may have more edges.
    pub fn new(program: &WitnessProgram) -> Result<CallAndReturnProgram, WitnessError> {
        let (mut functions, mut origin) = (Vec::new(), Vec::new());
        for id in program.function_ids() {
            let function = program.function(id);
            let kept = find_kept_nodes(function);
            origin.extend(kept.iter().map(|node| program.node_witness(id, *node)));
            functions.push(reduce_function(function, &kept));
        }
        let program = WitnessProgram::new(functions, program.start(), program.external().to_vec())?;
        Ok(CallAndReturnProgram { program, origin })
    }

    /// Returns the original node of a node of the reduced program, both as witnesses.
    pub fn origin(&self, witness: Witness) -> Witness {
        self.origin[witness.index()]
    }

    /// Derives the reduced program's weights from the original weights. Nodes keep their executions. The executions of an edge are unknown,
    /// so the smaller number of executions of its two nodes is assumed.
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

/// Returns true if a call is part of the call sequence, that is, unless it calls unknown code that only returns.
fn is_observable(call: &ProgramCall) -> bool {
    !call.callees.is_empty() || call.opaque != Some(Opaque::RETURNS)
}

fn find_kept_nodes(function: &WitnessFunction) -> Vec<Node> {
    let graph = &function.graph;
    let is_virtual = |node: Node| function.nodes[node.index()] == NodeKind::Virtual;
    let mut kept = vec![false; graph.node_count()];
    kept[graph.entry().index()] = true;
    kept[graph.exit().index()] = true;
    function.calls.iter().filter(|(_, call)| is_observable(call)).for_each(|(node, _)| kept[node.index()] = true);
    for edge in graph.edges() {
        let (from, to) = (graph.from(edge), graph.to(edge));
        let is_landing = function.edges[edge.index()] != WitnessEdgeKind::Flow;
        let is_beside = is_virtual(from) || is_virtual(to);
        kept[to.index()] |= is_landing || is_beside;
        kept[from.index()] |= is_beside || to == graph.entry();
    }
    graph.nodes().filter(|node| kept[node.index()]).collect()
}

fn reduce_function(function: &WitnessFunction, kept: &[Node]) -> WitnessFunction {
    let graph = &function.graph;
    let number = |node: Node| kept.binary_search(&node).ok().map(|place| Node(place as u32));
    let new = |node: Node| number(node).expect("the node is kept");
    let (mut edges, mut kinds) = (Vec::new(), Vec::new());
    for &from in kept {
        let mut found: BTreeSet<(u32, Node)> = BTreeSet::new();
        for (place, &edge) in (0u32..).zip(graph.out(from)) {
            // Parallel flow edges are merged. Each unwinding edge is kept separately; its target is a kept node.
            let kind = function.edges[edge.index()];
            let group = if kind == WitnessEdgeKind::Flow { 0 } else { place + 1 };
            for to in find_next_kept_nodes(function, &number, graph.to(edge)) {
                if found.insert((group, to)) {
                    edges.push((new(from), to));
                    kinds.push(kind);
                }
            }
        }
    }
    let nodes = kept.iter().map(|node| function.nodes[node.index()]).collect();
    // Blocks after a call may have been removed. Only calls that were tail calls before may look like tail calls.
    let flow = |edge: &&Edge| function.edges[edge.index()] == WitnessEdgeKind::Flow;
    let is_last = |node: Node| graph.out(node).iter().filter(flow).all(|edge| graph.to(*edge) == graph.exit());
    let call = |(node, call): &(Node, ProgramCall)| {
        Some((number(*node)?, ProgramCall { keeps_frame: call.keeps_frame || !is_last(*node), ..call.clone() }))
    };
    let calls = function.calls.iter().filter_map(call).collect();
    let graph = Graph::new(kept.len() as u32, new(graph.entry()), new(graph.exit()), edges).expect("all edges join kept nodes");
    WitnessFunction { name: function.name.clone(), graph, nodes, edges: kinds, calls }
}

/// Returns the new numbers of the kept nodes that control can reach next from a node.
fn find_next_kept_nodes(function: &WitnessFunction, number: &dyn Fn(Node) -> Option<Node>, start: Node) -> BTreeSet<Node> {
    let graph = &function.graph;
    let mut seen = vec![false; graph.node_count()];
    let (mut work, mut found) = (vec![start], BTreeSet::new());
    while let Some(node) = work.pop() {
        if std::mem::replace(&mut seen[node.index()], true) {
            continue;
        }
        match number(node) {
            Some(kept) => drop(found.insert(kept)),
            // Only flow edges are followed, because a node that is not kept has no call that could unwind.
            None => {
                work.extend(graph.out(node).iter().filter(|e| function.edges[e.index()] == WitnessEdgeKind::Flow).map(|e| graph.to(*e)))
            }
        }
    }
    found
}
