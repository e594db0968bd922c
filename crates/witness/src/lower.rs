//! Translates a program to the states of its pushdown automaton, function by function.
//!
//! Control passes from a node's state to the states of its calls, in order, and then to the choice of its successors. The states of a
//! function's nodes come first. A choice with a single alternative gets no state of its own.

use super::automaton::{AutomatonState, AutomatonStateData, StateAction, StateRole};
use super::program::{
    NodeKind, Opaque, ProgramCall, StartPoint, WitnessEdgeKind, WitnessFunction, WitnessFunctionId, WitnessKind, WitnessProgram,
};
use trodden_flow::graph::{Edge, Node};

/// The states of a program, and the first states of functions and nodes.
pub struct LoweredProgram {
    pub states: Vec<AutomatonStateData>,
    /// The state of each function's entry; the two added functions (outside, root) come last.
    pub entries: Vec<AutomatonState>,
    /// The state of each node, by function.
    pub nodes: Vec<Vec<AutomatonState>>,
}

/// Translates all functions, and adds the functions `outside` and root.
pub fn lower_program(program: &WitnessProgram, kind: WitnessKind) -> LoweredProgram {
    let outside = WitnessFunctionId(program.functions().len() as u32);
    let mut lowered = LoweredProgram { states: Vec::new(), entries: Vec::new(), nodes: Vec::new() };
    for id in program.function_ids() {
        let one = Lowering { program, kind, id, function: program.function(id), outside, lowered: &mut lowered };
        one.translate_function();
    }
    add_outside_function(program, outside, &mut lowered);
    add_root_function(program, outside, &mut lowered);
    lowered
}

impl LoweredProgram {
    fn push(&mut self, data: AutomatonStateData) -> AutomatonState {
        self.states.push(data);
        AutomatonState(self.states.len() as u32 - 1)
    }

    fn push_without_witness(&mut self, function: WitnessFunctionId, node: Node, role: StateRole, action: StateAction) -> AutomatonState {
        self.push(AutomatonStateData { witness: None, executes: false, function, node, role, action })
    }

    /// Returns a state that chooses among states, or the state itself if there is only one.
    fn push_choice(&mut self, function: WitnessFunctionId, node: Node, role: StateRole, of: Vec<AutomatonState>) -> AutomatonState {
        match of.as_slice() {
            [one] => *one,
            _ => self.push_without_witness(function, node, role, StateAction::Choose(of.into())),
        }
    }
}

/// Adds the function `outside`, which calls external entries any number of times and then returns, or unwinds if one of them unwinds.
fn add_outside_function(program: &WitnessProgram, outside: WitnessFunctionId, lowered: &mut LoweredProgram) {
    let node = Node(0);
    let choice = lowered.push_without_witness(outside, node, StateRole::Outside, StateAction::Return);
    let unwind = lowered.push_without_witness(outside, node, StateRole::Outside, StateAction::Unwind);
    let mut next = vec![lowered.push_without_witness(outside, node, StateRole::Outside, StateAction::Return)];
    for &callee in program.external() {
        next.push(lowered.push_without_witness(
            outside,
            node,
            StateRole::Outside,
            StateAction::Call { callee, after: choice, unwound: unwind },
        ));
    }
    lowered.states[choice.index()].action = StateAction::Choose(next.into());
    lowered.entries.push(choice);
    lowered.nodes.push(vec![choice]);
}

/// Adds the root, which calls the function in which the run starts, and then ends the run.
fn add_root_function(program: &WitnessProgram, outside: WitnessFunctionId, lowered: &mut LoweredProgram) {
    let root = WitnessFunctionId(outside.0 + 1);
    let callee = match program.start() {
        StartPoint::Main(main) => main,
        StartPoint::Outside => outside,
    };
    let end = lowered.push_without_witness(root, Node(0), StateRole::Outside, StateAction::End);
    let state = lowered.push_without_witness(root, Node(0), StateRole::Outside, StateAction::Call { callee, after: end, unwound: end });
    lowered.entries.push(state);
    lowered.nodes.push(vec![state]);
}

struct Lowering<'a> {
    program: &'a WitnessProgram,
    kind: WitnessKind,
    id: WitnessFunctionId,
    function: &'a WitnessFunction,
    outside: WitnessFunctionId,
    lowered: &'a mut LoweredProgram,
}

impl Lowering<'_> {
    fn translate_function(mut self) {
        let graph = &self.function.graph;
        let nodes: Vec<AutomatonState> = graph.nodes().map(|n| self.node_state(n)).collect();
        let edges: Vec<AutomatonState> = graph.edges().map(|e| self.edge_state(e, nodes[graph.to(e).index()])).collect();
        let mut calls: Vec<Vec<&ProgramCall>> = vec![Vec::new(); nodes.len()];
        for (node, call) in &self.function.calls {
            calls[node.index()].push(call);
        }
        for node in graph.nodes() {
            self.connect_node(node, nodes[node.index()], &edges, &calls[node.index()]);
        }
        self.lowered.entries.push(nodes[graph.entry().index()]);
        self.lowered.nodes.push(nodes);
    }

    fn node_state(&mut self, node: Node) -> AutomatonState {
        let kind = self.function.nodes[node.index()];
        let carries = self.kind == WitnessKind::Nodes && kind != NodeKind::Virtual;
        let witness = carries.then(|| self.program.node_witness(self.id, node));
        let executes = kind == NodeKind::Block;
        self.lowered.push(AutomatonStateData {
            witness,
            executes,
            function: self.id,
            node,
            role: StateRole::Node,
            action: StateAction::Return,
        })
    }

    /// Returns the state of an edge if edges are witnesses, and the state of the edge's target otherwise.
    fn edge_state(&mut self, edge: Edge, to: AutomatonState) -> AutomatonState {
        if self.kind == WitnessKind::Nodes {
            return to;
        }
        let witness = Some(self.program.edge_witness(self.id, edge));
        let node = self.function.graph.to(edge);
        let action = StateAction::Choose(Box::new([to]));
        self.lowered.push(AutomatonStateData { witness, executes: false, function: self.id, node, role: StateRole::Edge, action })
    }

    /// Sets the action of a node's state: its calls, then its successors.
    fn connect_node(&mut self, node: Node, state: AutomatonState, edges: &[AutomatonState], calls: &[&ProgramCall]) {
        let mut next = self.successors(node, WitnessEdgeKind::Flow, edges);
        if node == self.function.graph.exit() {
            next.insert(0, self.lowered.push_without_witness(self.id, node, StateRole::Node, StateAction::Return));
        }
        if calls.is_empty() {
            self.lowered.states[state.index()].action = match next.as_slice() {
                [one] if node == self.function.graph.exit() => self.lowered.states[one.index()].action.clone(),
                _ => StateAction::Choose(next.into()),
            };
            return;
        }
        let mut after = self.lowered.push_choice(self.id, node, StateRole::Node, next);
        after = match calls.last().is_some_and(|call| call.keeps_frame) {
            // This state separates the call from the return, so that the call does not look like a tail call.
            true => self.lowered.push_without_witness(self.id, node, StateRole::Node, StateAction::Choose(Box::new([after]))),
            false => self.skip_virtual_exit(after),
        };
        let unwound = self.state_after_unwinding(node, edges);
        for call in calls.iter().rev() {
            after = self.push_call(node, call, after, unwound);
        }
        self.lowered.states[state.index()].action = StateAction::Choose(Box::new([after]));
    }

    /// Replaces a virtual exit after a call by the return itself, so that the call looks like a tail call.
    fn skip_virtual_exit(&mut self, state: AutomatonState) -> AutomatonState {
        let data = &self.lowered.states[state.index()];
        let exit = self.function.graph.exit();
        let is_exit = data.role == StateRole::Node && data.node == exit && data.witness.is_none() && !data.executes;
        let plain = self.function.graph.out(exit).is_empty() && self.function.calls.iter().all(|(n, _)| *n != exit);
        match is_exit && plain {
            true => self.lowered.push_without_witness(self.id, exit, StateRole::Node, StateAction::Return),
            false => state,
        }
    }

    /// Returns the state that follows when a call of the node unwinds.
    fn state_after_unwinding(&mut self, node: Node, edges: &[AutomatonState]) -> AutomatonState {
        let mut pads = self.successors(node, WitnessEdgeKind::Unwind, edges);
        let certain = self.successors(node, WitnessEdgeKind::AlwaysCaught, edges);
        if certain.is_empty() {
            pads.push(self.lowered.push_without_witness(self.id, node, StateRole::Unwinding, StateAction::Unwind));
        }
        pads.extend(certain.into_iter().filter(|pad| !pads.contains(pad)).collect::<Vec<_>>());
        self.lowered.push_choice(self.id, node, StateRole::Unwinding, pads)
    }

    fn successors(&self, node: Node, kind: WitnessEdgeKind, edges: &[AutomatonState]) -> Vec<AutomatonState> {
        let mut next: Vec<AutomatonState> = Vec::new();
        for &edge in self.function.graph.out(node) {
            if self.function.edges[edge.index()] == kind && !next.contains(&edges[edge.index()]) {
                next.push(edges[edge.index()]);
            }
        }
        next
    }

    fn push_call(&mut self, node: Node, call: &ProgramCall, after: AutomatonState, unwound: AutomatonState) -> AutomatonState {
        let mut callees = call.callees.clone();
        callees.sort_unstable();
        callees.dedup();
        let mut next = Vec::new();
        for callee in callees {
            next.push(self.lowered.push_without_witness(self.id, node, StateRole::Call, StateAction::Call { callee, after, unwound }));
        }
        if let Some(opaque) = call.opaque {
            next.push(self.push_opaque_call(node, opaque, after, unwound));
        }
        self.lowered.push_choice(self.id, node, StateRole::Call, next)
    }

    fn push_opaque_call(&mut self, node: Node, opaque: Opaque, after: AutomatonState, unwound: AutomatonState) -> AutomatonState {
        let mut next = Vec::new();
        if opaque.returns {
            next.push(after);
        }
        if opaque.ends_run {
            next.push(self.lowered.push_without_witness(self.id, node, StateRole::Opaque, StateAction::End));
        }
        if opaque.unwinds {
            next.push(unwound);
        }
        let post = self.lowered.push_choice(self.id, node, StateRole::Opaque, next);
        match opaque.calls_back {
            true => self.lowered.push_without_witness(
                self.id,
                node,
                StateRole::Call,
                StateAction::Call { callee: self.outside, after: post, unwound },
            ),
            false => post,
        }
    }
}
