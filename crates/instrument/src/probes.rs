//! Translates a function's probe program into LLVM instructions: updates of the path register, and counts.
//!
//! The register is built directly in SSA form, in one pass over the acyclic graph: edges at which paths are cut set it to a constant, so no
//! value flows along a back edge. While the register's value is a known constant, no instruction is emitted. Increments at a path's end are
//! folded into the counter's address.
//!
//! First [`crate::places`] splits edges and landing pads, then the code is emitted block by block in topological order.

mod loops;
mod path_ends;

use crate::counting::{self, CounterAccess, DeferredCount, KnownPathLookup};
use crate::describe::FunctionCfg;
use crate::llvm::{Block, Builder, DebugLocation, Type, Value};
use crate::module_context::ModuleContext;
use crate::path_end::PathEndAction;
use crate::places::{EdgeInsertionPoints, InsertionPoint};
use crate::shape::predecessors;
use indexmap::IndexMap;
use loops::{IterationCount, TripCountFlush};
use std::cell::RefCell;
use trodden_flow::part::ProbeHits;
use trodden_flow::program::DominantIterationCode;
use trodden_flow::program::operation::{DominantId, LoopId, Operation, constant_register_value};
use trodden_flow::{Edge, Graph, Node, ProbeProgram};
use trodden_unit::EdgeKind;

/// The value of the path register at some point of the function.
#[derive(Clone, Copy, PartialEq, Debug)]
enum RegisterValue {
    Constant(i64),
    Computed(Value),
}

/// Inserts a function's probes. Returns the deleted values, each with its replacement.
pub fn insert_function_probes(
    context: ModuleContext,
    function: Value,
    cfg: &FunctionCfg,
    program: &ProbeProgram,
    counters: CounterAccess,
) -> Vec<(Value, Value)> {
    let (graph, location) = (program.graph(), crate::debug::location_without_line(context.module, function));
    let places = EdgeInsertionPoints::new(context.module, cfg, program, location);
    let mut work = ProbeCode {
        context,
        cfg,
        graph,
        program,
        places: &places,
        counters,
        deferred: RefCell::default(),
        flushes: RefCell::default(),
        path_ends: true,
        edge: Edge(0),
        appended: None,
        created: RefCell::new(Vec::new()),
        location,
        leaving: register_values_after_cuts(program),
        trip_counts: IndexMap::new(),
        in_register: vec![None; graph.edge_count()],
        pending_phis: Vec::new(),
    };
    for &node in program.order() {
        let arriving = work.path_register_at(node);
        let in_register = work.dominant_count_at(node);
        for &edge in graph.out(node) {
            work.in_register[edge.index()] = in_register;
            work.emit_edge(edge, arriving);
        }
    }
    work.complete_dominant_phis();
    work.path_ends = true;
    for flush in work.flushes.take() {
        work.emit_flush(flush);
    }
    let deferred = work.deferred.into_inner();
    if !deferred.is_empty() {
        counting::emit_deferred_counts(context.module, counters, &deferred, location);
    }
    if let PathEndAction::Segment(_) | PathEndAction::Iterations(_) = counters.at_end {
        erase_unused_instructions(&work.created.into_inner());
    }
    places.into_replaced_values()
}

/// Returns the path register's value after each edge that cuts paths, with which the next path starts. For the other edges, 0 is a dummy
/// until their code is emitted.
fn register_values_after_cuts(program: &ProbeProgram) -> Vec<RegisterValue> {
    let graph = program.graph();
    let mut leaving = vec![RegisterValue::Constant(0); graph.edge_count()];
    for edge in graph.edges().filter(|e| program.cut(*e).is_some()) {
        if let Some(start) = constant_register_value(program.operations(edge)) {
            leaving[edge.index()] = RegisterValue::Constant(start);
        }
    }
    leaving
}

/// Deletes those of the created values that are unused. The list has values after their operands.
fn erase_unused_instructions(created: &[Value]) {
    for value in created.iter().rev().filter(|value| value.users().next().is_none()) {
        // SAFETY: nothing uses the value, and this list has the only handle to it.
        unsafe { value.erase() };
    }
}

struct ProbeCode<'a> {
    context: ModuleContext,
    cfg: &'a FunctionCfg,
    graph: &'a Graph,
    program: &'a ProbeProgram,
    places: &'a EdgeInsertionPoints,
    counters: CounterAccess<'a>,
    /// Counts of loop iterations that are emitted last, because they split blocks.
    flushes: RefCell<Vec<TripCountFlush>>,
    /// Counts that are emitted later, because they need new blocks.
    deferred: RefCell<Vec<DeferredCount>>,
    /// True if the current count is for a path that ends, false if it is for a path that has reached a call.
    path_ends: bool,
    /// The edge whose code is being emitted.
    edge: Edge,
    /// The last word that the code of this edge appended to the stream, if any.
    appended: Option<Value>,
    /// Instructions created for the path register. Unused ones are deleted at the end.
    created: RefCell<Vec<Value>>,
    location: Option<DebugLocation>,
    /// The value of the path register after each edge's code.
    leaving: Vec<RegisterValue>,
    /// For each loop whose paths are counted by its trip count: the number of iterations so far, and the path register at loop entry.
    trip_counts: IndexMap<LoopId, (IterationCount, RegisterValue)>,
    /// For each edge: the number of dominant iterations (those on a loop's most frequent path) after the edge's code, if a register
    /// accumulates them.
    in_register: Vec<Option<Value>>,
    /// Phi nodes that merge the values of `in_register`. Their incoming values are added at the end.
    pending_phis: Vec<(Value, Block)>,
}

impl ProbeCode<'_> {
    /// Returns the value of the path register at the start of a node.
    fn path_register_at(&mut self, node: Node) -> RegisterValue {
        if node == self.graph.entry() {
            let start = if let PathEndAction::Segment(segments) = self.counters.at_end { segments.start } else { None };
            return start.map_or(RegisterValue::Constant(0), RegisterValue::Computed);
        }
        if let Some(which) = self.program.loops().iter().position(|l| l.head == node) {
            return self.enter_trip_counted_loop(LoopId(which));
        }
        let live: Vec<Edge> = self.graph.incoming(node).iter().copied().filter(|e| !self.program.is_dead(*e)).collect();
        // If no outgoing edge reads the register, its value does not matter.
        if !self.graph.out(node).iter().any(|e| self.program.reads_register(*e)) {
            return RegisterValue::Constant(0);
        }
        if let Some(same) = self.common_register(&live) {
            return same;
        }
        let block = self.cfg.nodes[node.index()].expect("a dispatch block has one edge in that restarts");
        let sources = predecessors(block);
        self.merge_register(block, &sources)
    }

    /// Returns the value of the path register after the given edges, if it is the same after all of them.
    fn common_register(&self, edges: &[Edge]) -> Option<RegisterValue> {
        let first = self.leaving[edges.first()?.index()];
        edges.iter().all(|e| self.leaving[e.index()] == first).then_some(first)
    }

    /// Creates a phi node for the path register in `block`, which merges its values from the blocks `sources`.
    fn merge_register(&self, block: Block, sources: &[Block]) -> RegisterValue {
        let module = self.context.module;
        let incoming: Vec<(Value, Block)> =
            sources.iter().map(|&from| (self.register_value(self.incoming_register(from, block)), from)).collect();
        let phi = Builder::phi_at_top(module, block, module.i64(), self.location);
        phi.add_incoming(&incoming);
        self.created.borrow_mut().push(phi);
        RegisterValue::Computed(phi)
    }

    /// Returns the path register's value on the way from one block to another: after the edge between them, or merged from the edges that
    /// share a landing pad.
    fn incoming_register(&self, from: Block, to: Block) -> RegisterValue {
        if let Some(edge) = self.places.edge_between(from, to) {
            return self.leaving[edge.index()];
        }
        match self.places.edges_sharing_landing_pad(from) {
            Some(edges) => self.common_register(edges).unwrap_or_else(|| self.merge_register(from, &predecessors(from))),
            // No edge leads this way, so the block is unreachable.
            None => RegisterValue::Constant(0),
        }
    }

    fn register_value(&self, register: RegisterValue) -> Value {
        match register {
            RegisterValue::Constant(c) => self.context.module.constant(c),
            RegisterValue::Computed(value) => value,
        }
    }

    fn emit_edge(&mut self, edge: Edge, arriving: RegisterValue) {
        if self.program.is_dead(edge) {
            return;
        }
        let at = |place: &InsertionPoint| Builder::before(self.context.module, place.instruction(), self.location);
        let builder = self.places.insertion_point(edge).map(at);
        self.edge = edge;
        self.path_ends = self.cfg.graph.kind(edge) != EdgeKind::Reach;
        let (operations, mut register) = (self.program.operations(edge), arriving);
        for (at, operation) in operations.iter().enumerate() {
            register = match (builder.as_ref(), operation) {
                (Some(code), Operation::Emit { increment }) => self.emit_path_event(code, register, *increment, &operations[at + 1..]),
                (Some(code), _) => self.emit_operation(code, *operation, edge, register),
                (None, _) => apply_without_code(*operation, register),
            };
        }
        self.leaving[edge.index()] = register;
    }

    /// Appends a path to the stream. If the operations that follow say that the function's call ends too, a single word represents both
    /// events.
    fn emit_path_event(&mut self, code: &Builder, register: RegisterValue, increment: i64, following: &[Operation]) -> RegisterValue {
        let (stream, words) = (self.counters.at_end.stream(), self.context.module.i64());
        let call_ends = following.iter().find(|o| **o != Operation::NoteCall) == Some(&Operation::LeaveCall);
        self.appended = Some(stream.append_path(code, self.counter_address(code, words, register, increment), call_ends));
        register
    }

    fn emit_operation(&mut self, code: &Builder, operation: Operation, edge: Edge, register: RegisterValue) -> RegisterValue {
        let one = self.context.module.constant(1);
        match operation {
            Operation::Add(increment) => return self.add_increment(code, register, increment),
            Operation::Flush { of, partial } => return self.flush_trip_count(code, of, partial, edge),
            Operation::Count { increment } => self.count(code, register, increment, one),
            Operation::CountIteration { increment, dominant } if self.counters.may_count_separately() => {
                let dominant = self.program.dominant_by_id(dominant);
                self.in_register[edge.index()] = self.count_dominant_iterations_apart(code, register, increment, dominant);
            }
            Operation::CountIteration { increment, .. } => self.count(code, register, increment, one),
            Operation::Check { increment } => self.defer_count(code, register, increment, one, KnownPathLookup::Needed),
            Operation::FlushDominant(which) => self.flush_dominant_iterations(code, which, edge),
            Operation::CountHits(hits) => self.count_hits(code, hits),
            Operation::NoteCall => {
                let path = self.appended.expect("a path is appended before it is recorded");
                self.counters.at_end.stream().record_call(code, path);
            }
            Operation::LeaveCall => self.counters.at_end.stream().clear_slot(code),
            _ => return apply_without_code(operation, register),
        }
        register
    }

    /// Counts the dominant iterations that were accumulated in a register.
    fn flush_dominant_iterations(&mut self, code: &Builder, which: DominantId, edge: Edge) {
        let index = RegisterValue::Constant(self.program.dominant_by_id(which).index);
        if let Some(number) = self.in_register[edge.index()].take() {
            // Adding 0 creates a new value, because the phi node may be replaced before the count is emitted.
            let number = code.add(number, self.context.module.constant(0));
            self.count(code, index, 0, number);
        }
    }

    fn count_hits(&self, builder: &Builder, hits: ProbeHits) {
        let (PathEndAction::Part(Some(first)), module) = (self.counters.at_end, self.context.module) else { return };
        for (word, by) in [(first, hits.labels), (first + 1, hits.all)].into_iter().filter(|(_, by)| *by > 0) {
            let address = builder.offset(module.i64(), self.counters.base, module.constant(word as i64));
            self.counters.add(builder, address, module.constant(by as i64));
        }
    }

    fn add_increment(&self, builder: &Builder, register: RegisterValue, increment: i64) -> RegisterValue {
        match register {
            RegisterValue::Constant(c) => RegisterValue::Constant(c.wrapping_add(increment)),
            RegisterValue::Computed(value) => {
                let sum = builder.add(value, self.context.module.constant(increment));
                self.created.borrow_mut().push(sum);
                RegisterValue::Computed(sum)
            }
        }
    }

    /// Marks the position of a count that needs new blocks and is emitted later.
    fn defer_count(&self, builder: &Builder, register: RegisterValue, increment: i64, by: Value, lookup: KnownPathLookup) {
        let path = self.register_value(self.add_increment(builder, register, increment));
        self.deferred.borrow_mut().push(DeferredCount::new(builder, path, by, lookup));
    }

    /// Returns the address of element `register + increment` of the function's counters. `cells` is the type of an element: a word, or an
    /// array of several cells.
    fn counter_address(&self, builder: &Builder, cells: Type, register: RegisterValue, increment: i64) -> Value {
        let (module, base) = (self.context.module, self.counters.base);
        let fixed = (self.counters.first as i64).wrapping_add(increment);
        match register {
            RegisterValue::Constant(c) => builder.offset(cells, base, module.constant(fixed.wrapping_add(c))),
            RegisterValue::Computed(value) => {
                let base = builder.offset(cells, base, module.constant(fixed));
                builder.offset(cells, base, value)
            }
        }
    }

    /// Emits `count[register + increment] += 1`, with separate code for the dominant iteration. Returns the new value of the register that
    /// accumulates dominant iterations; `None` if there is no such register.
    fn count_dominant_iterations_apart(
        &self,
        builder: &Builder,
        register: RegisterValue,
        increment: i64,
        dominant: &DominantIterationCode,
    ) -> Option<Value> {
        let (module, one) = (self.context.module, self.context.module.constant(1));
        let in_register = self.in_register[dominant.back.index()].filter(|_| dominant.in_register.is_some());
        match (register, in_register) {
            (RegisterValue::Constant(c), Some(in_register)) if c.wrapping_add(increment) == dominant.index => {
                Some(builder.add(in_register, one))
            }
            (RegisterValue::Constant(_), in_register) => {
                self.count(builder, register, increment, one);
                in_register
            }
            (RegisterValue::Computed(value), in_register) => {
                let path = self.register_value(self.add_increment(builder, register, increment));
                // Computed here, because the operands may be replaced before the count is emitted.
                let holds = builder.equal(value, module.constant(dominant.index.wrapping_sub(increment)));
                let more = in_register.map(|in_register| (in_register, builder.add(in_register, one)));
                let deferred = DeferredCount::new(builder, path, one, KnownPathLookup::NotNeeded);
                let choice = more.map(|(in_register, more)| builder.select(holds, more, in_register));
                self.deferred.borrow_mut().push(deferred.with_dominant_path(holds, dominant.index, choice));
                choice
            }
        }
    }

    /// Returns the number of dominant iterations accumulated so far, at the start of a node; `None` outside loops with a register for it.
    fn dominant_count_at(&mut self, node: Node) -> Option<Value> {
        let mut loops = self.program.dominant().iter().filter_map(|u| u.in_register.as_ref());
        let in_register = loops.find(|h| h.nodes.contains(&node)).filter(|_| self.counters.may_count_separately())?;
        let block = self.cfg.nodes[node.index()].expect("a dispatch block is in no such loop");
        if in_register.head != node {
            let incoming_register: Vec<Option<Value>> =
                predecessors(block).iter().map(|from| self.dominant_count_from(*from, block)).collect();
            if incoming_register.iter().all(|value| *value == incoming_register[0]) {
                return incoming_register[0];
            }
        }
        let module = self.context.module;
        let number = Builder::phi_at_top(module, block, module.i64(), self.location);
        // Its incoming values are added later, because the one from the latch is not known yet.
        self.pending_phis.push((number, block));
        Some(number)
    }

    fn dominant_count_from(&self, from: Block, to: Block) -> Option<Value> {
        self.places.edge_between(from, to).and_then(|edge| self.in_register[edge.index()])
    }

    /// Adds the incoming values to the phi nodes that merge numbers of dominant iterations.
    fn complete_dominant_phis(&mut self) {
        for (number, block) in std::mem::take(&mut self.pending_phis) {
            let value = |from: Block| self.dominant_count_from(from, block).unwrap_or_else(|| self.context.module.constant(0));
            number.add_incoming(&predecessors(block).into_iter().map(|from| (value(from), from)).collect::<Vec<_>>());
        }
    }
}

/// Returns the path register's value after an operation that emits no code.
fn apply_without_code(operation: Operation, register: RegisterValue) -> RegisterValue {
    match operation {
        Operation::Set(value) => RegisterValue::Constant(value),
        Operation::Discard | Operation::Iterate(_) | Operation::Unreachable => register,
        other => unreachable!("{other:?} needs code, and its edge has no place for any"),
    }
}
