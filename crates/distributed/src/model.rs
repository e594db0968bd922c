//! Builds a [`trodden_witness`] program, the model of an execution, from machine code. Its nodes are the blocks that can be watched, and
//! its edges the possible steps between them.
//!
//! Each block is a node. After a call with several possible outcomes (it may call back, unwind, or enter one of several functions), a new
//! node begins. A conditional tail call has a virtual node of its own.
//!
//! Indirect calls go to an artificial function, the *dispatcher*, which calls every function whose address is taken. Thus the possible
//! callees are listed once instead of for each call. The dispatcher does not appear in the trace. A function whose inside is not traced is
//! *opaque*; see [`imports`](crate::imports).

mod callees;

use crate::imports::{ImportingImage, UntracedCodeAssumption, assumed_behaviour, strip_symbol_version};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use trodden_binary::graph::{self, BlockEnd, CallKind, CallReturns, CallSite, CodeCallee, FunctionGraph, GraphDoubt, ProgramGraph};
use trodden_binary::linked::split_address;
use trodden_flow::graph::{Graph, Node, postorder};
use trodden_witness::{
    CallAndReturnProgram, NodeKind, Opaque, ProgramCall, StartPoint, Witness, WitnessEdgeKind, WitnessFunction, WitnessFunctionId,
    WitnessKind, WitnessProgram,
};

/// Names of functions that are not traced inside, each with the reason.
pub type OpaqueFunctions = Vec<(String, String)>;

/// Machine code as a witness program, with the address of each node.
pub struct WitnessModel {
    /// The witness program.
    pub program: WitnessProgram,
    /// For each function of `program`, its index in the graphs; `None` for the dispatcher.
    pub functions: Vec<Option<usize>>,
    /// For each node of `program`, by its witness number, its address; `None` for virtual nodes.
    pub addresses: Vec<Option<u64>>,
    /// The node at each address.
    pub witnesses: HashMap<u64, Witness>,
    /// The opaque functions, whose inside is not traced.
    pub opaque: OpaqueFunctions,
    /// If the model was reduced to calls and returns: the original model, and the reduction.
    pub reduced_from: Option<Box<(WitnessModel, CallAndReturnProgram)>>,
}

/// Facts about the execution, which an earlier run has shown.
#[derive(Clone, Debug, Default)]
pub struct ObservedTargets {
    /// Pairs of an indirect jump or tail call and a target that it took.
    pub targets: BTreeSet<(u64, u64)>,
    /// Addresses of executed calls to functions that throw.
    pub throws: BTreeSet<u64>,
    /// Addresses at which execution resumed after unwinding.
    pub landed: BTreeSet<u64>,
    /// Address at which the innermost traced function would have continued after its current call when the run ended.
    pub ended_before: Option<u64>,
    /// The only address at which execution resumed after unwinding. `None` unless it follows a `setjmp` in a function that was entered
    /// once, because otherwise it is not certain to which call of the function the execution returned.
    pub only_landing: Option<u64>,
}

/// Addresses that a run watches to find out where unwinding starts and where execution resumes.
#[derive(Clone, Debug, Default)]
pub struct UnwindingSites {
    /// Landing pads.
    pub pads: BTreeSet<u64>,
    /// Addresses of calls to functions that throw.
    pub throws: BTreeSet<u64>,
    /// For each call that may return twice, such as `setjmp`: its return address, its own address, and the entry of its function.
    pub twice: BTreeMap<u64, (u64, u64)>,
}

impl UnwindingSites {
    /// Collects these addresses from the graphs.
    pub fn from_graphs(graphs: &ProgramGraph) -> Self {
        let calls = || graphs.functions.iter().flat_map(|f| &f.calls);
        let may_throw = |name: &str| assumed_behaviour(strip_symbol_version(name), UntracedCodeAssumption::Usual).unwinds;
        let throws = |c: &&CallSite| matches!(&c.callee, CodeCallee::Import(name) if may_throw(name));
        let of_functions = graphs.functions.iter().flat_map(|f| f.calls.iter().map(move |c| (f.entry, c)));
        let twice = of_functions.filter(|(_, c)| c.returns == CallReturns::Twice);
        let twice = twice.filter_map(|(entry, c)| Some((c.return_address?, (c.address, entry))));
        Self {
            pads: graphs.functions.iter().flat_map(|f| f.landing_pads.iter().copied()).collect(),
            throws: calls().filter(throws).map(|c| c.address).collect(),
            twice: twice.collect(),
        }
    }

    /// Returns all addresses to watch, in ascending order.
    pub fn sites(&self) -> Vec<u64> {
        let twice = self.twice.iter().flat_map(|(after, (call, entry))| [*after, *call, *entry]);
        let all: BTreeSet<u64> = self.pads.iter().chain(&self.throws).copied().chain(twice).collect();
        all.into_iter().collect()
    }
}

/// Builds the model. Functions named in `excluded` are opaque. If `observed` is given, indirect jumps and tail calls with uncertain targets
/// lead only to the targets that were observed.
///
/// # Errors
/// There is no function with a name in `excluded`, or the program has no functions.
pub fn build_model(
    graphs: &ProgramGraph,
    image: &ImportingImage,
    excluded: &[String],
    assumption: UntracedCodeAssumption,
    observed: Option<&ObservedTargets>,
) -> Result<WitnessModel> {
    for name in excluded {
        graphs
            .functions_named(name)
            .next()
            .with_context(|| format!("cannot exclude function `{name}`, because the program has no such function"))?;
    }
    let closed = opaque_functions(graphs, excluded, observed.is_some());
    let known: Vec<usize> = (0..graphs.functions.len()).filter(|f| !closed.contains_key(f)).collect();
    let ids: HashMap<u64, WitnessFunctionId> =
        (0..).zip(&known).map(|(id, f)| (graphs.functions[*f].entry, WitnessFunctionId(id))).collect();
    let dispatcher = WitnessFunctionId(known.len() as u32);
    let leaves = ending_in_outside_callbacks(graphs, image, assumption);
    let mut builder = ModelBuilder {
        graphs,
        image,
        ids: &ids,
        dispatcher,
        leaves,
        observed,
        branching: HashSet::new(),
        unwinds: observed.is_none_or(|o| !o.throws.is_empty() || !o.landed.is_empty()),
        assumption,
    };
    builder.find_branching_functions();
    let mut functions = Vec::new();
    let mut places: Vec<Option<u64>> = Vec::new();
    for f in &known {
        let (function, of_nodes) = builder.build_function(&graphs.functions[*f])?;
        functions.push(function);
        places.extend(of_nodes);
    }
    let external = functions_callable_from_outside(graphs, image, &closed, &ids);
    functions.push(dispatcher_function(&external)?);
    places.extend([None, None]);
    let program = WitnessProgram::new(functions, StartPoint::Outside, external)?;
    let witnesses = (0..).zip(&places).filter_map(|(w, place)| Some(((*place)?, Witness(w)))).collect();
    let functions = known.iter().map(|f| Some(*f)).chain([None]).collect();
    let name = |f: usize| graphs.functions[f].name.clone();
    let mut opaque: OpaqueFunctions = closed.into_iter().map(|(f, why)| (name(f), why)).collect();
    opaque.sort();
    Ok(WitnessModel { program, functions, addresses: places, witnesses, opaque, reduced_from: None })
}

impl WitnessModel {
    /// Reduces the model to calls and returns.
    ///
    /// # Errors
    /// The reduced program has too many edges.
    pub fn reduce_to_calls(self) -> Result<WitnessModel> {
        let calls = CallAndReturnProgram::new(&self.program)?;
        let count = calls.program.witness_count(WitnessKind::Nodes) as u32;
        let addresses: Vec<Option<u64>> = (0..count).map(|w| self.addresses[calls.origin(Witness(w)).index()]).collect();
        let witnesses = (0..).zip(&addresses).filter_map(|(w, place)| Some(((*place)?, Witness(w)))).collect();
        Ok(WitnessModel {
            program: calls.program.clone(),
            functions: self.functions.clone(),
            addresses,
            witnesses,
            opaque: self.opaque.clone(),
            reduced_from: Some(Box::new((self, calls))),
        })
    }

    /// Returns the nodes to watch so that no entry from untraced code is missed: entries of functions that untraced code may call or that
    /// have no known caller, and blocks that cannot be reached from the entry of their function.
    pub fn entry_witnesses(&self) -> Vec<Witness> {
        let calls = self.program.functions().iter().zip(&self.functions).filter(|(_, known)| known.is_some()).flat_map(|(f, _)| &f.calls);
        let called: HashSet<WitnessFunctionId> = calls.flat_map(|(_, call)| call.callees.iter().copied()).collect();
        let external: HashSet<WitnessFunctionId> = self.program.external().iter().copied().collect();
        let known = self.program.function_ids().filter(|f| self.functions[f.index()].is_some());
        let unseen = known.filter(|f| external.contains(f) || !called.contains(f));
        let entries = unseen.map(|f| self.program.node_witness(f, self.program.function(f).graph.entry()));
        entries.chain(self.unreached_block_witnesses()).collect()
    }

    fn unreached_block_witnesses(&self) -> impl Iterator<Item = Witness> {
        let known = self.program.function_ids().filter(|f| self.functions[f.index()].is_some());
        known.flat_map(move |f| {
            let graph = &self.program.function(f).graph;
            let mut reached = vec![false; graph.node_count()];
            let next = |node: usize| graph.out(Node(node as u32)).iter().map(|edge| graph.to(*edge).index());
            postorder(graph.entry().index(), &mut reached, next);
            let unreached = graph.nodes().filter(move |node| !reached[node.index()] && *node != graph.exit());
            unreached.map(move |node| self.program.node_witness(f, node)).filter(|w| self.addresses[w.index()].is_some())
        })
    }
}

/// Returns the opaque functions, as indices in the graphs, each with the reason why its inside cannot be traced.
fn opaque_functions(graphs: &ProgramGraph, excluded: &[String], observed: bool) -> HashMap<usize, String> {
    let mut opaque: HashMap<usize, String> = HashMap::new();
    let mut owners: HashMap<u64, usize> = HashMap::new();
    for (number, function) in graphs.functions.iter().enumerate() {
        if excluded.contains(&function.name) {
            opaque.insert(number, "excluded by --opaque".to_owned());
        }
        let fatal = |d: &GraphDoubt| matches!(d, GraphDoubt::Undecodable) || (matches!(d, GraphDoubt::UnresolvedJump) && !observed);
        if let Some(doubt) = function.uncertain.iter().find(|u| fatal(&u.doubt)) {
            opaque.entry(number).or_insert_with(|| format!("{:#x}: {}", split_address(doubt.address).1, doubt.doubt));
        }
        if function.blocks.is_empty() {
            opaque.entry(number).or_insert_with(|| "its code was not found".to_owned());
        }
        if let Some(entry) = function.other_entries.first() {
            opaque.entry(number).or_insert_with(|| format!("control enters its middle, at {:#x}", split_address(*entry).1));
        }
        for block in &function.blocks {
            if let Some(other) = owners.insert(block.start, number).filter(|other| *other != number) {
                let shared = format!("{:#x} belongs to two functions", split_address(block.start).1);
                opaque.entry(number).or_insert_with(|| shared.clone());
                opaque.entry(other).or_insert(shared);
            }
        }
    }
    opaque
}

/// Returns the functions that untraced code may call: entry points and exports, callees of opaque functions, and functions whose address is
/// taken.
fn functions_callable_from_outside(
    graphs: &ProgramGraph,
    image: &ImportingImage,
    opaque: &HashMap<usize, String>,
    ids: &HashMap<u64, WitnessFunctionId>,
) -> Vec<WitnessFunctionId> {
    let kept = graphs.functions.iter().filter(|f| f.is_address_taken).map(|f| f.entry);
    let called = opaque.keys().flat_map(|f| graphs.functions[*f].calls.iter()).flat_map(|call| match &call.callee {
        CodeCallee::Function(entry) => vec![*entry],
        CodeCallee::OneOf(entries) => entries.clone(),
        CodeCallee::Import(_) | CodeCallee::Indirect => Vec::new(),
    });
    let resolvers = graphs.stubs.iter().filter_map(|s| s.resolver);
    let all: BTreeSet<u64> =
        kept.chain(image.starts.iter().copied()).chain(image.exports.values().copied()).chain(called).chain(resolvers).collect();
    all.into_iter().filter_map(|entry| ids.get(&entry).copied()).collect()
}

/// Returns the entry addresses of functions that may transfer control, by a tail call or a chain of tail calls, to untraced code that calls
/// the program back. Such a callback looks as if the function's caller had made it, so the model places it after the function's return.
fn ending_in_outside_callbacks(graphs: &ProgramGraph, image: &ImportingImage, assumption: UntracedCodeAssumption) -> HashSet<u64> {
    let mut leaves: HashSet<u64> = HashSet::new();
    loop {
        let before = leaves.len();
        for function in &graphs.functions {
            let is_tail = |c: &&CallSite| c.kind != CallKind::Call;
            let leaves_by = |c: &CallSite| match &c.callee {
                CodeCallee::Import(name) => match image.exports.get(strip_symbol_version(name)) {
                    Some(entry) => leaves.contains(entry),
                    None => image.behaviour_of_import(name, assumption).calls_back,
                },
                CodeCallee::Indirect => false,
                CodeCallee::Function(entry) => leaves.contains(entry),
                CodeCallee::OneOf(entries) => entries.iter().any(|e| leaves.contains(e)),
            };
            if function.calls.iter().filter(is_tail).any(leaves_by) {
                leaves.insert(function.entry);
            }
        }
        if leaves.len() == before {
            return leaves;
        }
    }
}

fn dispatcher_function(callees: &[WitnessFunctionId]) -> Result<WitnessFunction> {
    let graph = Graph::new(2, Node(0), Node(1), vec![(Node(0), Node(1))])?;
    let mut dispatcher = WitnessFunction::new("(indirect call)", graph);
    dispatcher.nodes = vec![NodeKind::Virtual; 2];
    let call = if callees.is_empty() { ProgramCall::opaque(Opaque::RETURNS) } else { ProgramCall::indirect(callees.to_vec()) };
    dispatcher.calls = vec![(Node(0), call)];
    Ok(dispatcher)
}

struct ModelBuilder<'a> {
    graphs: &'a ProgramGraph,
    image: &'a ImportingImage,
    ids: &'a HashMap<u64, WitnessFunctionId>,
    dispatcher: WitnessFunctionId,
    /// The result of [`ending_in_outside_callbacks`].
    leaves: HashSet<u64>,
    observed: Option<&'a ObservedTargets>,
    /// Entry addresses of functions that may end in a tail call with several outcomes, or in a chain of tail calls that ends in one.
    branching: HashSet<u64>,
    /// Whether exceptions or `longjmp` are possible.
    unwinds: bool,
    assumption: UntracedCodeAssumption,
}

struct FunctionModel {
    nodes: Vec<(NodeKind, Option<u64>)>,
    /// Nodes with calls that may unwind.
    unwinding: Vec<Node>,
    second_returns: Vec<Node>,
    edges: Vec<(Node, Node, WitnessEdgeKind)>,
    calls: Vec<(Node, ProgramCall)>,
    exit: Node,
}

impl FunctionModel {
    fn add_node(&mut self, kind: NodeKind, address: Option<u64>) -> Node {
        self.nodes.push((kind, address));
        Node(self.nodes.len() as u32 - 1)
    }

    fn add_edge(&mut self, from: Node, to: Node, kind: WitnessEdgeKind) {
        self.edges.push((from, to, kind));
    }
}

impl ModelBuilder<'_> {
    /// Converts a function to a function of the model. Also returns the address of each node.
    fn build_function(&self, graph: &FunctionGraph) -> Result<(WitnessFunction, Vec<Option<u64>>)> {
        let mut nodes: Vec<(NodeKind, Option<u64>)> = graph.blocks.iter().map(|b| (NodeKind::Block, Some(b.start))).collect();
        nodes.push((NodeKind::Virtual, None));
        let exit = Node(graph.blocks.len() as u32);
        let mut parts =
            FunctionModel { nodes, unwinding: Vec::new(), second_returns: Vec::new(), edges: Vec::new(), calls: Vec::new(), exit };
        for block in 0..graph.blocks.len() {
            self.add_block(graph, block as u32, &mut parts);
        }
        // `longjmp` may lead from any call in the function to each `setjmp` in it, which then returns a second time.
        for (from, to) in parts.unwinding.iter().flat_map(|f| parts.second_returns.iter().map(move |t| (*f, *t))) {
            let place = parts.nodes[to.index()].1;
            let only = place.is_some() && self.observed.is_some_and(|o| o.only_landing == place);
            parts.edges.push((from, to, if only { WitnessEdgeKind::AlwaysCaught } else { WitnessEdgeKind::Unwind }));
        }
        let entry = graph
            .block_starting_at(graph.entry)
            .with_context(|| format!("the control-flow graph of function {} has no block at the function's entry", graph.name))?;
        let edges = parts.edges.iter().map(|(from, to, _)| (*from, *to)).collect();
        let shape = Graph::new(parts.nodes.len() as u32, Node(entry.0), parts.exit, edges)?;
        let mut function = WitnessFunction::new(graph.name.clone(), shape);
        function.nodes = parts.nodes.iter().map(|n| n.0).collect();
        function.edges = parts.edges.iter().map(|e| e.2).collect();
        function.calls = parts.calls;
        Ok((function, parts.nodes.iter().map(|n| n.1).collect()))
    }

    fn add_block(&self, graph: &FunctionGraph, number: u32, parts: &mut FunctionModel) {
        let index = graph::BlockIndex(number);
        let block = graph.block(index);
        let mut at = Node(number);
        for call in graph.calls_in(index) {
            match call.kind {
                CallKind::Call => match self.add_call(graph, call, at, parts) {
                    Some(after) => at = after,
                    None => return,
                },
                CallKind::TailCall => {
                    parts.calls.push((at, self.model_call(call)));
                    parts.add_edge(at, parts.exit, WitnessEdgeKind::Flow);
                }
                CallKind::ConditionalTailCall => {
                    let tail = parts.add_node(NodeKind::Virtual, None);
                    parts.add_edge(at, tail, WitnessEdgeKind::Flow);
                    parts.calls.push((tail, self.model_call(call)));
                    parts.add_edge(tail, parts.exit, WitnessEdgeKind::Flow);
                }
            }
        }
        if block.end == BlockEnd::Return {
            parts.add_edge(at, parts.exit, WitnessEdgeKind::Flow);
        }
        for edge in graph.successors(index).iter().filter(|e| e.kind != graph::CodeEdgeKind::Unwind) {
            parts.add_edge(at, Node(edge.to.0), WitnessEdgeKind::Flow);
        }
    }

    /// Adds a call to the node `at`. Returns the node after the call, or `None` if the call does not return.
    fn add_call(&self, graph: &FunctionGraph, call: &CallSite, at: Node, parts: &mut FunctionModel) -> Option<Node> {
        let callee = self.model_call(call);
        let is_branch =
            callee.callees.len() > 1 || callee.callees.contains(&self.dispatcher) || callee.opaque.is_some_and(|o| o != Opaque::RETURNS);
        let lands = call.always_lands && !self.image.jumps;
        let pad =
            call.landing_pad.filter(|pad| self.unwinds && (lands || self.may_land_at(*pad))).and_then(|pad| graph.block_starting_at(pad));
        // Earlier calls of the same node have no landing pad, so this call gets a node of its own, with its own unwind edge.
        let at = match pad.is_some() && parts.calls.last().is_some_and(|(node, _)| *node == at) {
            true => {
                let own = parts.add_node(NodeKind::Virtual, None);
                parts.add_edge(at, own, WitnessEdgeKind::Flow);
                own
            }
            false => at,
        };
        parts.calls.push((at, callee));
        let leaves = matches!(
            self.resolve_callee(call),
            CodeCallee::Function(entry) if self.leaves.contains(&entry) && self.ids.contains_key(&entry)
        );
        if leaves {
            parts.calls.push((at, ProgramCall::opaque(Opaque { calls_back: true, ..Opaque::RETURNS })));
        }
        let branching = matches!(self.resolve_callee(call), CodeCallee::Function(entry) if self.branching.contains(&entry));
        let is_branch = is_branch || leaves || branching;
        if let Some(pad) = pad {
            parts.add_edge(at, Node(pad.0), if lands { WitnessEdgeKind::AlwaysCaught } else { WitnessEdgeKind::Unwind });
        }
        if self.unwinds {
            parts.unwinding.push(at);
        }
        let after = call.return_address.filter(|_| call.returns != CallReturns::Never)?;
        // If a block starts at the return address, the function's graph contains the edge to it.
        let starts_block = graph.block_starting_at(after).is_some();
        let twice = call.returns == CallReturns::Twice && self.unwinds && self.may_land_at(after);
        if twice && let Some(block) = graph.block_starting_at(after) {
            parts.second_returns.push(Node(block.0));
        }
        match (is_branch || twice || pad.is_some()) && !starts_block {
            true => {
                let next = parts.add_node(NodeKind::Continuation, Some(after));
                parts.add_edge(at, next, WitnessEdgeKind::Flow);
                if twice {
                    parts.second_returns.push(next);
                }
                Some(next)
            }
            false => Some(at),
        }
    }

    /// Finds the functions that end in a tail call with several outcomes. A caller must be able to observe when such a function has
    /// returned.
    fn find_branching_functions(&mut self) {
        loop {
            let before = self.branching.len();
            for function in &self.graphs.functions {
                let branches = |c: &CallSite| {
                    let callee = self.model_call(c);
                    let outcomes = callee.opaque.map_or(0, |o| [o.returns, o.ends_run, o.unwinds].into_iter().filter(|o| *o).count());
                    let several = callee.callees.len() + outcomes > 1 || callee.callees.contains(&self.dispatcher);
                    several || matches!(self.resolve_callee(c), CodeCallee::Function(entry) if self.branching.contains(&entry))
                };
                if function.calls.iter().filter(|c| c.kind != CallKind::Call).any(branches) {
                    self.branching.insert(function.entry);
                }
            }
            if self.branching.len() == before {
                return;
            }
        }
    }
}
