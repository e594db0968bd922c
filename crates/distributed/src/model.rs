//! Machine code as a program of [`trodden_witness`]: which places can be watched, and what may follow what.
//!
//! A block is a node. Behind a call of which several things can come (it may call back, unwind, or go to one of several
//! functions) a continuation begins, which can be watched, too; unless a block starts there anyway. A tail call is a
//! call with nothing behind it; a conditional one has a node of its own, which is no code.
//!
//! Indirect calls go to one function of ours, the *dispatcher*, which calls each function whose address is kept; so
//! their callees are listed once, not once a call. Its frames are left out of the trace.
//!
//! What other files' functions do is assumed by their names ([`imports`](crate::imports)): first the usual, and if an
//! execution contradicts that, anything. So that no call from outside is overlooked, the entries of all functions that
//! may be called so are watched in one of the runs.

mod callees;

use crate::imports::{Assumption, ImportingImage, opaque, plain};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use trodden_binary::graph::{self, BlockEnd, CallKind, CallSite, CodeCallee, Doubt, FunctionGraph, ProgramGraph, Returns};
use trodden_binary::linked::in_file;
use trodden_flow::graph::{Graph, Node, postorder};
use trodden_witness::{
    CallProgram, NodeKind, Opaque, ProgramCall, ProgramStart, Witness, WitnessEdgeKind, WitnessFunction, WitnessFunctionId, WitnessKind,
    WitnessProgram,
};

/// Machine code as a program, with the way back.
pub struct Model {
    /// The program.
    pub program: WitnessProgram,
    /// For each function of the program, its place in the graphs; `None` for the dispatcher.
    pub functions: Vec<Option<usize>>,
    /// For each node of the program, numbered as witnesses are, its address; `None` where no code is.
    pub addresses: Vec<Option<u64>>,
    /// The node at an address.
    pub witnesses: HashMap<u64, Witness>,
    /// Functions that are not traced inside, by name, with the reason.
    pub opaque: Vec<(String, String)>,
    /// The model of which this one has calls and returns only, if it has.
    pub reduced_from: Option<Box<(Model, CallProgram)>>,
}

/// What a run like those to come has shown.
#[derive(Clone, Debug, Default)]
pub struct ObservedCalls {
    /// Where uncertain jumps and indirect tail calls led.
    pub targets: BTreeSet<(u64, u64)>,
    /// Calls that unwind, as far as they were executed.
    pub throws: BTreeSet<u64>,
    /// Where unwinding led.
    pub landed: BTreeSet<u64>,
    /// Where the innermost call of the image would have returned to in which the run ended.
    pub ended_before: Option<u64>,
    /// Where all of it led, if that is behind the `setjmp` of a function that was entered once: it has one frame, which nothing passes by.
    pub only_landing: Option<u64>,
}

/// Places that say what unwinding leads where.
#[derive(Clone, Debug, Default)]
pub struct Unwinding {
    /// Landing pads.
    pub pads: BTreeSet<u64>,
    /// Calls of what unwinds.
    pub throws: BTreeSet<u64>,
    /// Behind each call of what returns twice, the call and the entry of its function.
    pub twice: BTreeMap<u64, (u64, u64)>,
}

impl Unwinding {
    /// Those of an image.
    pub fn from_graphs(graphs: &ProgramGraph) -> Self {
        let calls = || graphs.functions.iter().flat_map(|f| &f.calls);
        let throws = |c: &&CallSite| matches!(&c.callee, CodeCallee::Import(name) if opaque(plain(name), Assumption::Usual).unwinds);
        let of_functions = graphs.functions.iter().flat_map(|f| f.calls.iter().map(move |c| (f.entry, c)));
        let twice = of_functions.filter(|(_, c)| c.returns == Returns::Twice);
        let twice = twice.filter_map(|(entry, c)| Some((c.return_address?, (c.address, entry))));
        Self {
            pads: graphs.functions.iter().flat_map(|f| f.landing_pads.iter().copied()).collect(),
            throws: calls().filter(throws).map(|c| c.address).collect(),
            twice: twice.collect(),
        }
    }

    /// All of them, ascending.
    pub fn sites(&self) -> Vec<u64> {
        let twice = self.twice.iter().flat_map(|(behind, (call, entry))| [*behind, *call, *entry]);
        let all: BTreeSet<u64> = self.pads.iter().chain(&self.throws).copied().chain(twice).collect();
        all.into_iter().collect()
    }
}

/// Makes the model. `excluded` are names of functions that are not to be traced inside. `observed` is what a run like
/// those to come has shown: jumps and tail calls that are uncertain and not in it are never executed.
///
/// # Errors
/// A function that is to be excluded does not exist, or the program has no function.
pub fn model(
    graphs: &ProgramGraph,
    image: &ImportingImage,
    excluded: &[String],
    assumption: Assumption,
    observed: Option<&ObservedCalls>,
) -> Result<Model> {
    for name in excluded {
        graphs.functions_named(name).next().with_context(|| format!("there is no function `{name}` to leave out"))?;
    }
    let closed = opaque_functions(graphs, excluded, observed.is_some());
    let known: Vec<usize> = (0..graphs.functions.len()).filter(|f| !closed.contains_key(f)).collect();
    let ids: HashMap<u64, WitnessFunctionId> =
        (0..).zip(&known).map(|(id, f)| (graphs.functions[*f].entry, WitnessFunctionId(id))).collect();
    let dispatcher = WitnessFunctionId(known.len() as u32);
    let leaves = leaving_outside(graphs, image, assumption);
    let mut maker = Maker {
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
    maker.find_branching();
    let mut functions = Vec::new();
    let mut places: Vec<Option<u64>> = Vec::new();
    for f in &known {
        let (function, of_nodes) = maker.function(&graphs.functions[*f])?;
        functions.push(function);
        places.extend(of_nodes);
    }
    let external = external(graphs, image, &closed, &ids);
    functions.push(dispatcher_function(&external)?);
    places.extend([None, None]);
    let program = WitnessProgram::new(functions, ProgramStart::Outside, external)?;
    let witnesses = (0..).zip(&places).filter_map(|(w, place)| Some(((*place)?, Witness(w)))).collect();
    let functions = known.iter().map(|f| Some(*f)).chain([None]).collect();
    let name = |f: usize| graphs.functions[f].name.clone();
    let mut opaque: Vec<(String, String)> = closed.into_iter().map(|(f, why)| (name(f), why)).collect();
    opaque.sort();
    Ok(Model { program, functions, addresses: places, witnesses, opaque, reduced_from: None })
}

impl Model {
    /// What the sequence of calls needs of it.
    ///
    /// # Errors
    /// That has too many edges.
    pub fn of_calls(self) -> Result<Model> {
        let calls = CallProgram::new(&self.program)?;
        let count = calls.program.witness_count(WitnessKind::Nodes) as u32;
        let addresses: Vec<Option<u64>> = (0..count).map(|w| self.addresses[calls.origin(Witness(w)).index()]).collect();
        let witnesses = (0..).zip(&addresses).filter_map(|(w, place)| Some(((*place)?, Witness(w)))).collect();
        Ok(Model {
            program: calls.program.clone(),
            functions: self.functions.clone(),
            addresses,
            witnesses,
            opaque: self.opaque.clone(),
            reduced_from: Some(Box::new((self, calls))),
        })
    }

    /// Entries of the functions that may be called from outside, and of those that nothing is known to call; blocks without a known
    /// predecessor.
    pub fn entries(&self) -> Vec<Witness> {
        let calls = self.program.functions().iter().zip(&self.functions).filter(|(_, known)| known.is_some()).flat_map(|(f, _)| &f.calls);
        let called: HashSet<WitnessFunctionId> = calls.flat_map(|(_, call)| call.callees.iter().copied()).collect();
        let external: HashSet<WitnessFunctionId> = self.program.external().iter().copied().collect();
        let known = self.program.function_ids().filter(|f| self.functions[f.index()].is_some());
        let unseen = known.filter(|f| external.contains(f) || !called.contains(f));
        let entries = unseen.map(|f| self.program.node_witness(f, self.program.function(f).graph.entry()));
        entries.chain(self.unreached()).collect()
    }

    /// Blocks that no path of their function leads to, as far as is known.
    fn unreached(&self) -> impl Iterator<Item = Witness> {
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

/// Functions whose graph is not whole, with the reason, by their place in the graphs.
fn opaque_functions(graphs: &ProgramGraph, excluded: &[String], observed: bool) -> HashMap<usize, String> {
    let mut opaque: HashMap<usize, String> = HashMap::new();
    let mut owners: HashMap<u64, usize> = HashMap::new();
    for (number, function) in graphs.functions.iter().enumerate() {
        if excluded.contains(&function.name) {
            opaque.insert(number, "left out by --opaque".to_owned());
        }
        let fatal = |d: &Doubt| matches!(d, Doubt::Undecodable) || (matches!(d, Doubt::UnresolvedJump) && !observed);
        if let Some(doubt) = function.uncertain.iter().find(|u| fatal(&u.doubt)) {
            opaque.entry(number).or_insert_with(|| format!("{:#x}: {}", in_file(doubt.address).1, doubt.doubt));
        }
        if function.blocks.is_empty() {
            opaque.entry(number).or_insert_with(|| "no code is known of it".to_owned());
        }
        if let Some(entry) = function.other_entries.first() {
            opaque.entry(number).or_insert_with(|| format!("it is entered in its middle, at {:#x}", in_file(*entry).1));
        }
        for block in &function.blocks {
            if let Some(other) = owners.insert(block.start, number).filter(|other| *other != number) {
                let shared = format!("{:#x} belongs to two functions", in_file(block.start).1);
                opaque.entry(number).or_insert_with(|| shared.clone());
                opaque.entry(other).or_insert(shared);
            }
        }
    }
    opaque
}

/// Functions that code outside may call: those whose address is kept, where the program starts, and what opaque functions call.
fn external(
    graphs: &ProgramGraph,
    image: &ImportingImage,
    opaque: &HashMap<usize, String>,
    ids: &HashMap<u64, WitnessFunctionId>,
) -> Vec<WitnessFunctionId> {
    let kept = graphs.functions.iter().filter(|f| f.address_taken).map(|f| f.entry);
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

/// Entries of functions that may end in a tail call of code that calls back, or of such a function. Whether that calls
/// back, or the caller of the function, nothing could say; so the calls back are put behind the function's return.
fn leaving_outside(graphs: &ProgramGraph, image: &ImportingImage, assumption: Assumption) -> HashSet<u64> {
    let mut leaves: HashSet<u64> = HashSet::new();
    loop {
        let before = leaves.len();
        for function in &graphs.functions {
            let is_tail = |c: &&CallSite| c.kind != CallKind::Call;
            let leaves_by = |c: &CallSite| match &c.callee {
                CodeCallee::Import(name) => match image.exports.get(plain(name)) {
                    Some(entry) => leaves.contains(entry),
                    None => image.import(name, assumption).calls_back,
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

/// A function of one node that calls any of those whose address is kept.
fn dispatcher_function(callees: &[WitnessFunctionId]) -> Result<WitnessFunction> {
    let graph = Graph::new(2, Node(0), Node(1), vec![(Node(0), Node(1))])?;
    let mut dispatcher = WitnessFunction::new("(indirect call)", graph);
    dispatcher.nodes = vec![NodeKind::Virtual; 2];
    let call = if callees.is_empty() { ProgramCall::opaque(Opaque::RETURNS) } else { ProgramCall::indirect(callees.to_vec()) };
    dispatcher.calls = vec![(Node(0), call)];
    Ok(dispatcher)
}

struct Maker<'a> {
    graphs: &'a ProgramGraph,
    image: &'a ImportingImage,
    ids: &'a HashMap<u64, WitnessFunctionId>,
    dispatcher: WitnessFunctionId,
    /// Entries of functions that may end in a tail call of code outside.
    leaves: HashSet<u64>,
    observed: Option<&'a ObservedCalls>,
    /// Entries of functions that may end in a tail call of several functions, or of such a function.
    branching: HashSet<u64>,
    /// Whether exceptions are thrown, or `longjmp` is called.
    unwinds: bool,
    assumption: Assumption,
}

/// A function on its way.
struct Parts {
    nodes: Vec<(NodeKind, Option<u64>)>,
    /// Nodes with calls that may unwind, and those behind calls that return twice.
    unwinding: Vec<Node>,
    again: Vec<Node>,
    edges: Vec<(Node, Node, WitnessEdgeKind)>,
    calls: Vec<(Node, ProgramCall)>,
    exit: Node,
}

impl Parts {
    fn node(&mut self, kind: NodeKind, address: Option<u64>) -> Node {
        self.nodes.push((kind, address));
        Node(self.nodes.len() as u32 - 1)
    }

    fn edge(&mut self, from: Node, to: Node, kind: WitnessEdgeKind) {
        self.edges.push((from, to, kind));
    }
}

impl Maker<'_> {
    /// A function, and the address of each of its nodes.
    fn function(&self, graph: &FunctionGraph) -> Result<(WitnessFunction, Vec<Option<u64>>)> {
        let mut nodes: Vec<(NodeKind, Option<u64>)> = graph.blocks.iter().map(|b| (NodeKind::Block, Some(b.start))).collect();
        nodes.push((NodeKind::Virtual, None));
        let exit = Node(graph.blocks.len() as u32);
        let mut parts = Parts { nodes, unwinding: Vec::new(), again: Vec::new(), edges: Vec::new(), calls: Vec::new(), exit };
        for block in 0..graph.blocks.len() {
            self.block(graph, block as u32, &mut parts);
        }
        // `longjmp` leads behind each call of `setjmp` in the function, out of any other call.
        for (from, to) in parts.unwinding.iter().flat_map(|f| parts.again.iter().map(move |t| (*f, *t))) {
            let place = parts.nodes[to.index()].1;
            let only = place.is_some() && self.observed.is_some_and(|o| o.only_landing == place);
            parts.edges.push((from, to, if only { WitnessEdgeKind::Lands } else { WitnessEdgeKind::Unwind }));
        }
        let entry = graph.block_starting_at(graph.entry).with_context(|| format!("no block starts at the entry of {}", graph.name))?;
        let edges = parts.edges.iter().map(|(from, to, _)| (*from, *to)).collect();
        let shape = Graph::new(parts.nodes.len() as u32, Node(entry.0), parts.exit, edges)?;
        let mut function = WitnessFunction::new(graph.name.clone(), shape);
        function.nodes = parts.nodes.iter().map(|n| n.0).collect();
        function.edges = parts.edges.iter().map(|e| e.2).collect();
        function.calls = parts.calls;
        Ok((function, parts.nodes.iter().map(|n| n.1).collect()))
    }

    /// Adds what a block does: its calls, one after the other, then its end.
    fn block(&self, graph: &FunctionGraph, number: u32, parts: &mut Parts) {
        let index = graph::BlockIndex(number);
        let block = graph.block(index);
        let mut at = Node(number);
        for call in graph.calls_in(index) {
            match call.kind {
                CallKind::Call => match self.call(graph, call, at, parts) {
                    Some(behind) => at = behind,
                    None => return,
                },
                CallKind::TailCall => {
                    parts.calls.push((at, self.callee(call)));
                    parts.edge(at, parts.exit, WitnessEdgeKind::Flow);
                }
                CallKind::ConditionalTailCall => {
                    let tail = parts.node(NodeKind::Virtual, None);
                    parts.edge(at, tail, WitnessEdgeKind::Flow);
                    parts.calls.push((tail, self.callee(call)));
                    parts.edge(tail, parts.exit, WitnessEdgeKind::Flow);
                }
            }
        }
        if block.end == BlockEnd::Return {
            parts.edge(at, parts.exit, WitnessEdgeKind::Flow);
        }
        for edge in graph.successors(index).iter().filter(|e| e.kind != graph::CodeEdgeKind::Unwind) {
            parts.edge(at, Node(edge.to.0), WitnessEdgeKind::Flow);
        }
    }

    /// Adds a call; gives the node behind it, or nothing if it does not return.
    fn call(&self, graph: &FunctionGraph, call: &CallSite, at: Node, parts: &mut Parts) -> Option<Node> {
        let callee = self.callee(call);
        let is_branch =
            callee.callees.len() > 1 || callee.callees.contains(&self.dispatcher) || callee.opaque.is_some_and(|o| o != Opaque::RETURNS);
        let lands = call.always_lands && !self.image.jumps;
        let pad = call.landing_pad.filter(|pad| self.unwinds && (lands || self.led_to(*pad))).and_then(|pad| graph.block_starting_at(pad));
        // A landing pad must not stand for calls before, which have none.
        let at = match pad.is_some() && parts.calls.last().is_some_and(|(node, _)| *node == at) {
            true => {
                let own = parts.node(NodeKind::Virtual, None);
                parts.edge(at, own, WitnessEdgeKind::Flow);
                own
            }
            false => at,
        };
        parts.calls.push((at, callee));
        let leaves =
            matches!(self.target(call), CodeCallee::Function(entry) if self.leaves.contains(&entry) && self.ids.contains_key(&entry));
        if leaves {
            parts.calls.push((at, ProgramCall::opaque(Opaque { calls_back: true, ..Opaque::RETURNS })));
        }
        let branching = matches!(self.target(call), CodeCallee::Function(entry) if self.branching.contains(&entry));
        let is_branch = is_branch || leaves || branching;
        if let Some(pad) = pad {
            parts.edge(at, Node(pad.0), if lands { WitnessEdgeKind::Lands } else { WitnessEdgeKind::Unwind });
        }
        if self.unwinds {
            parts.unwinding.push(at);
        }
        let behind = call.return_address.filter(|_| call.returns != Returns::Never)?;
        // A block that starts there is entered by an edge of its own.
        let starts_block = graph.block_starting_at(behind).is_some();
        let twice = call.returns == Returns::Twice && self.unwinds && self.led_to(behind);
        if twice && let Some(block) = graph.block_starting_at(behind) {
            parts.again.push(Node(block.0));
        }
        match (is_branch || twice || pad.is_some()) && !starts_block {
            true => {
                let next = parts.node(NodeKind::Continuation, Some(behind));
                parts.edge(at, next, WitnessEdgeKind::Flow);
                if twice {
                    parts.again.push(next);
                }
                Some(next)
            }
            false => Some(at),
        }
    }

    /// Finds the functions whose tail calls are branches: who calls them must see when they are back.
    fn find_branching(&mut self) {
        loop {
            let before = self.branching.len();
            for function in &self.graphs.functions {
                let branches = |c: &CallSite| {
                    let callee = self.callee(c);
                    let outcomes = callee.opaque.map_or(0, |o| [o.returns, o.ends_run, o.unwinds].into_iter().filter(|o| *o).count());
                    let several = callee.callees.len() + outcomes > 1 || callee.callees.contains(&self.dispatcher);
                    several || matches!(self.target(c), CodeCallee::Function(entry) if self.branching.contains(&entry))
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
