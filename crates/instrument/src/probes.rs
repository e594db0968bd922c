//! Carries out a probe program: puts the path register and the counts into a function.
//!
//! The register is no variable in memory: it is built directly in SSA form, in one pass over the acyclic graph. Cut
//! edges all set it to a constant, so no value flows against the order. As long as a path's sum is a constant no
//! instruction is made for it; initialisation sinks to where it is needed, and the increments at a path's end become
//! part of the counter's address.
//!
//! First the edges get places for their code ([`crate::places`] splits edges and landing pads); then the code is made,
//! block by block in topological order.

mod loops;
mod path_ends;

use crate::counting::{self, Counters, DeferredCount, Lookup};
use crate::describe::FunctionCfg;
use crate::llvm::{Block, Builder, Value};
use crate::module_context::ModuleContext;
use crate::path_end::PathEnd;
use crate::places::{InsertionPlace, Places};
use crate::shape::predecessors;
use indexmap::IndexMap;
use llvm_sys::prelude::{LLVMMetadataRef, LLVMTypeRef};
use loops::{IterationNumber, TripCountFlush};
use std::cell::RefCell;
use trodden_flow::frequency::Frequencies;
use trodden_flow::part::Hits;
use trodden_flow::program::operation::{DominantId, LoopId, Operation, value_set};
use trodden_flow::program::verify::{WalkBudget, verify_counts};
use trodden_flow::program::{BlockProperties, Choices, DominantIterationCode, StreamEdges};
use trodden_flow::{Edge, Graph, Node, ProbeProgram};
use trodden_unit::EdgeKind;

/// The path register's value at some point.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Register {
    /// It is known.
    Constant(i64),
    /// It is computed.
    Computed(Value),
}

/// Runs the passes on a program. Builds with debug assertions verify it before and after each.
pub fn run_passes(program: &mut ProbeProgram, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) {
    if cfg!(debug_assertions) {
        let verified = program.run_verified_passes(frequencies, blocks, choices, &WalkBudget::default());
        verified.unwrap_or_else(|fault| panic!("{fault}"));
    } else {
        program.run_passes(frequencies, blocks, choices);
    }
}

/// Has a program append to a stream where it counted. Builds with debug assertions verify it.
pub fn write_stream(program: &mut ProbeProgram, edges: StreamEdges) {
    program.write_stream(edges);
    if cfg!(debug_assertions) {
        verify_counts(program, &WalkBudget::default()).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// Inserts a function's probes. Gives the values that had to be replaced (and are no more) with what took their places.
pub fn insert(
    context: ModuleContext,
    function: Value,
    cfg: &FunctionCfg,
    program: &ProbeProgram,
    counters: Counters,
) -> Vec<(Value, Value)> {
    let (graph, location) = (program.graph(), crate::debug::no_line(context.module, function));
    let places = Places::make(context.module, cfg, program, location);
    let mut work = ProbeCode {
        context,
        cfg,
        graph,
        program,
        places: &places,
        counters,
        waiting: RefCell::default(),
        flushes: RefCell::default(),
        path_ends: true,
        edge: Edge(0),
        appended: None,
        made: RefCell::new(Vec::new()),
        location,
        leaving: starts_behind_cuts(program),
        trip_counts: IndexMap::new(),
        in_register: vec![None; graph.edge_count()],
        holding: Vec::new(),
    };
    for &node in program.order() {
        let arriving = work.arriving(node);
        let in_register = work.in_register_at(node);
        for &edge in graph.out(node) {
            work.in_register[edge.index()] = in_register;
            work.take(edge, arriving);
        }
    }
    work.merge_in_register();
    work.path_ends = true;
    for flush in work.flushes.take() {
        work.jump_over(flush);
    }
    let waiting = work.waiting.into_inner();
    if !waiting.is_empty() {
        counting::make(context.module, counters, &waiting, location);
    }
    if let PathEnd::Segment(_) = counters.at_end {
        erase_unused(&work.made.into_inner());
    }
    places.into_replaced()
}

/// The path register behind each edge, as far as it is known at the start: where a path is cut, the value that the next one begins with.
fn starts_behind_cuts(program: &ProbeProgram) -> Vec<Register> {
    let graph = program.graph();
    let mut leaving = vec![Register::Constant(0); graph.edge_count()];
    for edge in graph.edges().filter(|e| program.cut(*e).is_some()) {
        if let Some(start) = value_set(program.operations(edge)) {
            leaving[edge.index()] = Register::Constant(start);
        }
    }
    leaving
}

/// Takes values out that nothing uses. Those that use others come later in the list.
fn erase_unused(made: &[Value]) {
    for value in made.iter().rev().filter(|value| value.users().next().is_none()) {
        // SAFETY: the list is the last that holds the value, which no instruction uses; it is read once.
        unsafe { value.erase() };
    }
}

/// The code of a function's probes, while it is made.
struct ProbeCode<'a> {
    context: ModuleContext,
    cfg: &'a FunctionCfg,
    graph: &'a Graph,
    program: &'a ProbeProgram,
    places: &'a Places,
    /// Where the function counts, and how.
    counters: Counters<'a>,
    /// Iterations that are counted at last, since blocks are split for that.
    flushes: RefCell<Vec<TripCountFlush>>,
    /// Counts that need blocks of their own.
    waiting: RefCell<Vec<DeferredCount>>,
    /// Whether what is counted now is the end of a path, not that it came to a call.
    path_ends: bool,
    /// The edge whose code is made.
    edge: Edge,
    /// The word that it appended last to the stream.
    appended: Option<Value>,
    /// Values of the register that were made, where those that nothing uses are taken out again.
    made: RefCell<Vec<Value>>,
    location: Option<LLVMMetadataRef>,
    /// The register behind each edge's code.
    leaving: Vec<Register>,
    /// For each loop that is counted by iterations: their number so far, and the register where the loop was entered.
    trip_counts: IndexMap<LoopId, (IterationNumber, Register)>,
    /// How many dominant iterations are in a register behind each edge's code, where some may be.
    in_register: Vec<Option<Value>>,
    /// Numbers of iterations in registers that are merged at the beginning of a block.
    holding: Vec<(Value, Block)>,
}

impl ProbeCode<'_> {
    /// The register at the beginning of a node.
    fn arriving(&mut self, node: Node) -> Register {
        if node == self.graph.entry() {
            let start = if let PathEnd::Segment(segments) = self.counters.at_end { segments.start } else { None };
            return start.map_or(Register::Constant(0), Register::Computed);
        }
        if let Some(which) = self.program.loops().iter().position(|l| l.head == node) {
            return self.enter_loop(LoopId(which));
        }
        let live: Vec<Edge> = self.graph.incoming(node).iter().copied().filter(|e| !self.program.is_dead(*e)).collect();
        // Nothing is made of the register where every edge on is counted already.
        if !self.graph.out(node).iter().any(|e| self.program.reads_register(*e)) {
            return Register::Constant(0);
        }
        if let Some(same) = self.same(&live) {
            return same;
        }
        let block = self.cfg.nodes[node.index()].expect("a dispatch block has one edge in that restarts");
        let sources = predecessors(block);
        self.merge(block, &sources)
    }

    /// The value that all these edges bring, if it is one.
    fn same(&self, edges: &[Edge]) -> Option<Register> {
        let first = self.leaving[edges.first()?.index()];
        edges.iter().all(|e| self.leaving[e.index()] == first).then_some(first)
    }

    /// A phi node of what comes from the given blocks.
    fn merge(&self, block: Block, sources: &[Block]) -> Register {
        let module = self.context.module;
        let incoming: Vec<(Value, Block)> = sources.iter().map(|&from| (self.value(self.brought(from, block)), from)).collect();
        let phi = Builder::phi_at_top(module, block, module.i64(), self.location);
        phi.add_incoming(&incoming);
        self.made.borrow_mut().push(phi);
        Register::Computed(phi)
    }

    /// What arrives from a block: the edge's value, or the merged value of the edges that share a landing pad.
    fn brought(&self, from: Block, to: Block) -> Register {
        if let Some(edge) = self.places.arrival(from, to) {
            return self.leaving[edge.index()];
        }
        match self.places.shared_pad(from) {
            Some(edges) => self.same(edges).unwrap_or_else(|| self.merge(from, &predecessors(from))),
            // From a block that cannot be reached.
            None => Register::Constant(0),
        }
    }

    /// The register as a value.
    fn value(&self, register: Register) -> Value {
        match register {
            Register::Constant(c) => self.context.module.constant(c),
            Register::Computed(value) => value,
        }
    }

    /// Makes the code of an edge.
    fn take(&mut self, edge: Edge, arriving: Register) {
        if self.program.is_dead(edge) {
            return;
        }
        let at = |place: &InsertionPlace| Builder::before(self.context.module, place.instruction(), self.location);
        let builder = self.places.code(edge).map(at);
        self.edge = edge;
        self.path_ends = self.cfg.edges[edge.index()].kind != EdgeKind::Reach;
        let (operations, mut register) = (self.program.operations(edge), arriving);
        for (at, operation) in operations.iter().enumerate() {
            register = match (builder.as_ref(), operation) {
                (Some(code), Operation::Emit { increment }) => self.emit(code, register, *increment, &operations[at + 1..]),
                (Some(code), _) => self.carry_out(code, *operation, edge, register),
                (None, _) => without_code(*operation, register),
            };
        }
        self.leaving[edge.index()] = register;
    }

    /// Appends a path to the stream. If the call ends behind it, as the following operations say, one word says both.
    fn emit(&mut self, code: &Builder, register: Register, increment: i64, following: &[Operation]) -> Register {
        let (stream, words) = (self.counters.at_end.stream(), self.context.module.i64());
        let call_ends = following.iter().find(|o| **o != Operation::NoteCall) == Some(&Operation::LeaveCall);
        self.appended = Some(stream.path(code, self.address(code, words, register, increment), call_ends));
        register
    }

    /// Makes the code of one operation; gives the register behind it.
    fn carry_out(&mut self, code: &Builder, operation: Operation, edge: Edge, register: Register) -> Register {
        let one = self.context.module.constant(1);
        match operation {
            Operation::Add(increment) => return self.plus(code, register, increment),
            Operation::Flush { of, partial } => return self.flush(code, of, partial, edge),
            Operation::Count { increment } => self.count(code, register, increment, one),
            Operation::CountIteration { increment, dominant } if self.counters.may_count_split() => {
                let dominant = self.program.dominant_of(dominant);
                self.in_register[edge.index()] = self.count_split(code, register, increment, dominant);
            }
            Operation::CountIteration { increment, .. } => self.count(code, register, increment, one),
            Operation::Check { increment } => self.defer_count(code, register, increment, one, Lookup::Needed),
            Operation::FlushDominant(which) => self.flush_dominant(code, which, edge),
            Operation::CountHits(hits) => self.count_hits(code, hits),
            Operation::NoteCall => {
                let path = self.appended.expect("a path is appended before it is noted");
                self.counters.at_end.stream().note(code, path);
            }
            Operation::LeaveCall => self.counters.at_end.stream().leave(code),
            _ => return without_code(operation, register),
        }
        register
    }

    /// Counts the dominant iterations that are kept in a register.
    fn flush_dominant(&mut self, code: &Builder, which: DominantId, edge: Edge) {
        let index = Register::Constant(self.program.dominant_of(which).index);
        if let Some(number) = self.in_register[edge.index()].take() {
            // An instruction of its own: the phi node may be replaced by another until the count is made.
            let number = code.add(number, self.context.module.constant(0));
            self.count(code, index, 0, number);
        }
    }

    /// Counts hits of an edge's probes.
    fn count_hits(&self, builder: &Builder, hits: Hits) {
        let (PathEnd::Part(Some(first)), module) = (self.counters.at_end, self.context.module) else { return };
        for (word, by) in [(first, hits.labels), (first + 1, hits.all)].into_iter().filter(|(_, by)| *by > 0) {
            let address = builder.offset(module.i64(), self.counters.base, module.constant(word as i64));
            self.counters.add(builder, address, module.constant(by as i64));
        }
    }

    /// The register and an increment.
    fn plus(&self, builder: &Builder, register: Register, increment: i64) -> Register {
        match register {
            Register::Constant(c) => Register::Constant(c.wrapping_add(increment)),
            Register::Computed(value) => {
                let sum = builder.add(value, self.context.module.constant(increment));
                self.made.borrow_mut().push(sum);
                Register::Computed(sum)
            }
        }
    }

    /// Counts later, in blocks of its own.
    fn defer_count(&self, builder: &Builder, register: Register, increment: i64, by: Value, lookup: Lookup) {
        let path = self.value(self.plus(builder, register, increment));
        self.waiting.borrow_mut().push(DeferredCount::at(builder, path, by, lookup));
    }

    /// The address of `count[register + increment]`, in an array of words or of cells.
    fn address(&self, builder: &Builder, cells: LLVMTypeRef, register: Register, increment: i64) -> Value {
        let (module, base) = (self.context.module, self.counters.base);
        let fixed = (self.counters.first as i64).wrapping_add(increment);
        match register {
            Register::Constant(c) => builder.offset(cells, base, module.constant(fixed.wrapping_add(c))),
            Register::Computed(value) => {
                let base = builder.offset(cells, base, module.constant(fixed));
                builder.offset(cells, base, value)
            }
        }
    }

    /// `count[register + increment] += 1`, which is mostly `count[dominant]`. Gives how many dominant iterations are in the register then.
    fn count_split(&self, builder: &Builder, register: Register, increment: i64, dominant: &DominantIterationCode) -> Option<Value> {
        let (module, one) = (self.context.module, self.context.module.constant(1));
        let in_register = self.in_register[dominant.back.index()].filter(|_| dominant.in_register.is_some());
        match (register, in_register) {
            (Register::Constant(c), Some(in_register)) if c.wrapping_add(increment) == dominant.index => {
                Some(builder.add(in_register, one))
            }
            (Register::Constant(_), in_register) => {
                self.count(builder, register, increment, one);
                in_register
            }
            (Register::Computed(value), in_register) => {
                let path = self.value(self.plus(builder, register, increment));
                // Made now: values may be replaced by others until the count is made.
                let holds = builder.equal(value, module.constant(dominant.index.wrapping_sub(increment)));
                let more = in_register.map(|in_register| (in_register, builder.add(in_register, one)));
                let waiting = DeferredCount::at(builder, path, one, Lookup::Decided);
                let choice = more.map(|(in_register, more)| builder.select(holds, more, in_register));
                self.waiting.borrow_mut().push(waiting.mostly(holds, dominant.index, choice));
                choice
            }
        }
    }

    /// How many dominant iterations are in a register at the beginning of a node; none where there cannot be any.
    fn in_register_at(&mut self, node: Node) -> Option<Value> {
        let mut loops = self.program.dominant().iter().filter_map(|u| u.in_register.as_ref());
        let in_register = loops.find(|h| h.nodes.contains(&node)).filter(|_| self.counters.may_count_split())?;
        let block = self.cfg.nodes[node.index()].expect("a dispatch block holds nothing");
        if in_register.head != node {
            let brought: Vec<Option<Value>> = predecessors(block).iter().map(|from| self.in_register_from(*from, block)).collect();
            if brought.iter().all(|value| *value == brought[0]) {
                return brought[0];
            }
        }
        let module = self.context.module;
        let number = Builder::phi_at_top(module, block, module.i64(), self.location);
        // What iterates to the head is known later.
        self.holding.push((number, block));
        Some(number)
    }

    fn in_register_from(&self, from: Block, to: Block) -> Option<Value> {
        self.places.arrival(from, to).and_then(|edge| self.in_register[edge.index()])
    }

    /// Says what the numbers of iterations in registers are merged of.
    fn merge_in_register(&mut self) {
        for (number, block) in std::mem::take(&mut self.holding) {
            let value = |from: Block| self.in_register_from(from, block).unwrap_or_else(|| self.context.module.constant(0));
            number.add_incoming(&predecessors(block).into_iter().map(|from| (value(from), from)).collect::<Vec<_>>());
        }
    }
}

/// The register behind an operation that needs no code.
fn without_code(operation: Operation, register: Register) -> Register {
    match operation {
        Operation::Set(value) => Register::Constant(value),
        Operation::Discard | Operation::Iterate(_) | Operation::Unreachable => register,
        other => unreachable!("{other:?} needs code, and its edge has no place for any"),
    }
}
