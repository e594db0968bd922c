//! Small random programs, and an exhaustive enumeration of their short executions. The programs have direct, indirect and recursive calls,
//! calls of code that is not part of the program (opaque code), and unwinding.
//!
//! The enumeration interprets a program independently of `trodden_witness`, whose results the tests compare with it. A stack frame of the
//! interpreter consists of a function, a node, and the number of calls that have been made in this node.

use crate::graphs::{self, CycleKind};
use crate::random::Random;
use std::collections::VecDeque;
use trodden_flow::{Edge, Graph, Node};
use trodden_witness::{
    ExecutionEvent, NodeKind, Opaque, ProgramCall, ReconstructError, Reconstructor, StartPoint, Witness, WitnessEdgeKind, WitnessFunction,
    WitnessFunctionId, WitnessKind, WitnessProgram, WitnessSite,
};

/// Kinds of edges. A random edge has each kind with a probability proportional to how often the kind is repeated here.
const EDGE_KINDS: [WitnessEdgeKind; 8] = [
    WitnessEdgeKind::Flow,
    WitnessEdgeKind::Flow,
    WitnessEdgeKind::Flow,
    WitnessEdgeKind::Flow,
    WitnessEdgeKind::Flow,
    WitnessEdgeKind::Flow,
    WitnessEdgeKind::Unwind,
    WitnessEdgeKind::AlwaysCaught,
];

/// The features that random programs may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramFeatures {
    /// Only direct and indirect calls.
    Calls,
    /// In addition to calls: landing pads, nodes without code, and opaque code, which can end the run, unwind, and call functions of the
    /// program.
    All,
}

/// Generates a program of 1 to `functions` functions. Each function has at most `nodes` nodes. It has at most `edges` edges,
/// or one edge fewer than it has nodes if that is more.
pub fn program(random: &mut Random, functions: u32, nodes: u32, edges: u32, features: ProgramFeatures) -> WitnessProgram {
    let count = 1 + random.below(u64::from(functions)) as u32;
    let all = features == ProgramFeatures::All;
    let list = (0..count).map(|id| random_function(random, id, count, nodes, edges, all)).collect();
    let external: Vec<WitnessFunctionId> = (0..count).map(WitnessFunctionId).filter(|_| all && random.chance(30)).collect();
    let start = if all && random.chance(15) { StartPoint::Outside } else { StartPoint::Main(WitnessFunctionId(0)) };
    WitnessProgram::new(list, start, external).expect("it refers to existing functions")
}

fn random_function(random: &mut Random, id: u32, count: u32, nodes: u32, edges: u32, all: bool) -> WitnessFunction {
    let graph = match random.chance(20) {
        true => graphs::graph(random, nodes, edges, CycleKind::Some),
        false => graph_with_spine(random, nodes, edges),
    };
    let mut function = WitnessFunction::new(format!("f{id}"), graph);
    for node in function.graph.nodes().collect::<Vec<_>>() {
        let leaf = id + 1 == count && random.chance(90);
        for _ in 0..random.pick(if leaf { &[0] } else { &[0, 0, 0, 1, 1, 2] }) {
            function.calls.push((node, random_call(random, id, count, all)));
        }
    }
    if all {
        function.nodes.iter_mut().for_each(|kind| {
            *kind = random.pick(&[NodeKind::Block, NodeKind::Block, NodeKind::Block, NodeKind::Continuation, NodeKind::Virtual]);
        });
        function.edges.iter_mut().for_each(|kind| *kind = random.pick(&EDGE_KINDS));
    }
    function
}

/// Generates a graph in which a path through all nodes leads to the exit. Each edge of this path is left out with a probability of 10 %.
fn graph_with_spine(random: &mut Random, nodes: u32, edges: u32) -> Graph {
    let nodes = 2 + random.below(u64::from(nodes) - 1) as u32;
    let mut list: Vec<(Node, Node)> = (1..nodes).filter(|_| random.chance(90)).map(|n| (Node(n - 1), Node(n))).collect();
    while list.len() < edges as usize && random.chance(80) {
        list.push((Node(random.below(u64::from(nodes) - 1) as u32), Node(1 + random.below(u64::from(nodes) - 1) as u32)));
    }
    Graph::new(nodes, Node(0), Node(nodes - 1), list).expect("the nodes exist")
}

/// Generates a call from function number `id`, one of `count` functions. Most callees have higher numbers than the caller, so that
/// recursion is rare.
fn random_call(random: &mut Random, id: u32, count: u32, all: bool) -> ProgramCall {
    let callee = |random: &mut Random| match id + 1 < count && random.chance(80) {
        true => WitnessFunctionId(id + 1 + random.below(u64::from(count - id - 1)) as u32),
        false => WitnessFunctionId(random.below(u64::from(count)) as u32),
    };
    let callees = (0..random.pick(&[1, 1, 1, 2])).map(|_| callee(random)).collect();
    let opaque =
        Opaque { returns: random.chance(70), ends_run: random.chance(20), unwinds: random.chance(30), calls_back: random.chance(20) };
    match random.below(4) {
        0 if all && (opaque.returns || opaque.ends_run || opaque.unwinds) => {
            ProgramCall { callees: Vec::new(), opaque: Some(opaque), keeps_frame: false }
        }
        1 if all && random.chance(30) => ProgramCall { callees, opaque: Some(opaque), keeps_frame: false },
        _ => ProgramCall::indirect(callees),
    }
}

/// A call or a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallOrReturn {
    /// A function is called.
    Enter(WitnessFunctionId),
    /// A function returns or is unwound.
    Leave(WitnessFunctionId),
}

/// A complete execution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Execution {
    /// The executed basic blocks, in the order of execution.
    pub blocks: Vec<(WitnessFunctionId, Node)>,
    /// The executed nodes and edges, in the order of execution. A trace may have recorded any of them.
    pub sites: Vec<WitnessSite>,
    /// All calls and returns, in the order of execution. Functions that have not returned at the end of the run have a call but no return.
    pub calls: Vec<CallOrReturn>,
}

#[derive(Clone)]
enum ExecutionFrame {
    /// The frame executes a node of the program, and has made `calls_made` of the node's calls.
    Code { function: WitnessFunctionId, node: Node, calls_made: usize },
    /// The frame executes opaque code. `can` describes in which ways that can continue.
    Outside { can: Opaque },
}

#[derive(Clone)]
struct PartialExecution {
    frames: Vec<ExecutionFrame>,
    execution: Execution,
    steps: usize,
}

/// Enumerates the executions of at most `steps` steps and fewer than 12 nested frames, shortest first. The search stops when `limit`
/// executions have been found, or when it has become too large. The result is sorted and has no duplicates.
pub fn executions(program: &WitnessProgram, steps: usize, limit: usize) -> Vec<Execution> {
    let nothing = Execution { blocks: Vec::new(), sites: Vec::new(), calls: Vec::new() };
    let mut first = PartialExecution { frames: Vec::new(), execution: nothing, steps: 0 };
    match program.start() {
        StartPoint::Main(main) => first.enter_function(program, main),
        StartPoint::Outside => first.frames.push(ExecutionFrame::Outside { can: Opaque { calls_back: true, ..Opaque::RETURNS } }),
    }
    let (mut ended, mut running) = (Vec::new(), VecDeque::from([first]));
    let mut budget = limit * 40;
    while let Some(one) = running.pop_front() {
        if ended.len() >= limit || budget == 0 {
            break;
        }
        budget -= 1;
        if one.frames.is_empty() {
            ended.push(one.execution);
        } else if one.steps < steps && one.frames.len() < 12 {
            running.extend(one.next_states(program));
        }
    }
    ended.sort();
    ended.dedup();
    ended
}

impl PartialExecution {
    fn enter_function(&mut self, program: &WitnessProgram, function: WitnessFunctionId) {
        self.execution.calls.push(CallOrReturn::Enter(function));
        self.enter_node(program, function, program.function(function).graph.entry());
    }

    fn pop_frame(&mut self) {
        if let Some(ExecutionFrame::Code { function, .. }) = self.frames.pop() {
            self.execution.calls.push(CallOrReturn::Leave(function));
        }
    }

    fn enter_node(&mut self, program: &WitnessProgram, function: WitnessFunctionId, node: Node) {
        let kind = program.function(function).nodes[node.index()];
        if kind != NodeKind::Virtual {
            self.execution.sites.push(WitnessSite::Node(function, node));
        }
        if kind == NodeKind::Block {
            self.execution.blocks.push((function, node));
        }
        self.frames.push(ExecutionFrame::Code { function, node, calls_made: 0 });
    }

    /// Returns the state after the innermost frame has left its node along an edge.
    fn follow_edge(&self, program: &WitnessProgram, function: WitnessFunctionId, edge: Edge) -> PartialExecution {
        let mut next = self.clone();
        next.frames.pop();
        next.execution.sites.push(WitnessSite::Edge(function, edge));
        next.enter_node(program, function, program.function(function).graph.to(edge));
        next
    }

    fn next_states(&self, program: &WitnessProgram) -> Vec<PartialExecution> {
        let mut this = self.clone();
        this.steps += 1;
        match this.frames.last().expect("it has frames").clone() {
            ExecutionFrame::Outside { can } => this.leave_opaque(program, can),
            ExecutionFrame::Code { function, node, calls_made } => {
                let of = program.function(function);
                match of.calls.iter().filter(|(n, _)| *n == node).nth(calls_made) {
                    Some((_, call)) => this.make_call(program, call),
                    None => this.leave_node(program, function, node),
                }
            }
        }
    }

    fn make_call(mut self, program: &WitnessProgram, call: &ProgramCall) -> Vec<PartialExecution> {
        let Some(ExecutionFrame::Code { calls_made, .. }) = self.frames.last_mut() else { unreachable!("only code calls") };
        *calls_made += 1;
        let mut next = Vec::new();
        for callee in &call.callees {
            let mut one = self.clone();
            one.enter_function(program, *callee);
            next.push(one);
        }
        if let Some(can) = call.opaque {
            self.frames.push(ExecutionFrame::Outside { can });
            next.push(self);
        }
        next
    }

    fn leave_opaque(mut self, program: &WitnessProgram, can: Opaque) -> Vec<PartialExecution> {
        let mut next = Vec::new();
        for callee in program.external().iter().filter(|_| can.calls_back) {
            let mut one = self.clone();
            one.enter_function(program, *callee);
            next.push(one);
        }
        self.frames.pop();
        if can.returns {
            next.push(self.clone());
        }
        if can.unwinds {
            next.extend(self.clone().states_after_unwinding(program));
        }
        if can.ends_run {
            self.frames.clear();
            next.push(self);
        }
        next
    }

    /// Returns all states that can follow when an exception leaves the innermost call: either a landing pad in one of the frames is
    /// entered, or the exception leaves all frames.
    fn states_after_unwinding(self, program: &WitnessProgram) -> Vec<PartialExecution> {
        let mut this = self;
        let mut next = Vec::new();
        while let Some(frame) = this.frames.last().cloned() {
            if let ExecutionFrame::Code { function, node, .. } = frame {
                let of = program.function(function);
                let pads = of.graph.out(node).iter().filter(|e| of.edges[e.index()] != WitnessEdgeKind::Flow);
                next.extend(pads.map(|pad| this.follow_edge(program, function, *pad)));
                if of.graph.out(node).iter().any(|e| of.edges[e.index()] == WitnessEdgeKind::AlwaysCaught) {
                    return next;
                }
            }
            this.pop_frame();
        }
        next.push(this);
        next
    }

    fn leave_node(mut self, program: &WitnessProgram, function: WitnessFunctionId, node: Node) -> Vec<PartialExecution> {
        let of = program.function(function);
        let flow = of.graph.out(node).iter().filter(|e| of.edges[e.index()] == WitnessEdgeKind::Flow);
        let mut next: Vec<PartialExecution> = flow.map(|edge| self.follow_edge(program, function, *edge)).collect();
        if node == of.graph.exit() {
            self.pop_frame();
            next.push(self);
        }
        next
    }
}

/// Returns all events of one kind that a trace of this function can contain: a witness for each node with code, or for each edge.
pub fn witnesses_of(program: &WitnessProgram, kind: WitnessKind, function: WitnessFunctionId) -> Vec<Witness> {
    let WitnessFunction { graph, nodes, .. } = program.function(function);
    match kind {
        WitnessKind::Nodes => {
            let code = graph.nodes().filter(|n| nodes[n.index()] != NodeKind::Virtual);
            code.map(|n| program.node_witness(function, n)).collect()
        }
        WitnessKind::Edges => graph.edges().map(|e| program.edge_witness(function, e)).collect(),
    }
}

/// Returns the basic blocks of the execution that `walk` reconstructs from traces.
///
/// # Errors
/// The traces contradict the program's graphs, or several executions have the same traces.
pub fn blocks_of<I: Iterator<Item = Witness>>(walk: &mut Reconstructor<I>) -> Result<Vec<(WitnessFunctionId, Node)>, ReconstructError> {
    let mut blocks = Vec::new();
    while let Some(event) = walk.next_event()? {
        if let ExecutionEvent::Block(function, node) = event {
            blocks.push((function, node));
        }
    }
    Ok(blocks)
}
