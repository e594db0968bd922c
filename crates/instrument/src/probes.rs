//! Carries out a probe program: puts the path register and the counts into a function.
//!
//! The register is no variable in memory: it is built directly in SSA form, in one pass over the acyclic graph. Cut
//! edges all set it to a constant, so no value flows against the order. As long as a path's sum is a constant no
//! instruction is made for it; initialisation sinks to where it is needed, and the increments at a path's end become
//! part of the counter's address.
//!
//! First the edges get places for their code ([`crate::places`] splits edges and landing pads); then the code is made,
//! block by block in topological order.

use crate::counting::{self, Counters, Flushing, Lookup, Waiting};
use crate::describe::FunctionCfg;
use crate::interesting::Words;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::module_context::ModuleContext;
use crate::places::{Place, Places};
use crate::shape::{new_block_behind, predecessors, split_off_behind};
use crate::trip_count::{self, Counter};
use crate::weights::mark_unlikely;
use indexmap::IndexMap;
use llvm_sys::LLVMIntPredicate;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;
use std::cell::RefCell;
use trodden_flow::frequency::Frequencies;
use trodden_flow::partition::Hits;
use trodden_flow::program::operation::{DominantId, LoopId, Operation, value_set};
use trodden_flow::program::{BlockProperties, Choices, DominantIteration, StreamEdges, TripCountedLoop};
use trodden_flow::verify::program::{WalkBudget, verify_counts};
use trodden_flow::{Edge, Graph, Node, ProbeProgram};
use trodden_unit::EdgeKind;

/// The path register's value at some point.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Register {
    Constant(i64),
    Computed(Value),
}

/// How often a loop iterated.
#[derive(Clone, Copy)]
enum Number {
    /// This many times, always.
    Always(i64),
    /// As often as this tells, which was made for it.
    Made(Counter),
    /// As often as this tells, which the program counts itself.
    Counted(Counter),
}

/// What is counted when a loop is left after some iterations, and not if there were none.
struct TripCountFlush {
    /// The register's value: a choice between that without iterations and that with some.
    choice: Value,
    /// Whether there were none.
    none: Value,
    /// How many there were.
    number: Counter,
    /// The register when the loop was entered, in an instruction of its own, and when it iterated.
    entered: Value,
    start: Register,
    /// What to add to the register for the index.
    increment: i64,
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
    let graph = program.graph();
    let location = crate::debug::no_line(context.module, function);
    let places = Places::make(context.module, cfg, program, location);
    let mut work = Work {
        context,
        cfg,
        graph,
        program,
        places: &places,
        counters,
        waiting: RefCell::new(Vec::new()),
        flushes: RefCell::new(Vec::new()),
        path_ends: true,
        edge: Edge(0),
        appended: None,
        made: RefCell::new(Vec::new()),
        location,
        leaving: vec![Register::Constant(0); graph.edge_count()],
        trip_counts: IndexMap::new(),
        in_register: vec![None; graph.edge_count()],
        holding: Vec::new(),
    };
    for edge in graph.edges().filter(|e| program.cut(*e).is_some()) {
        if let Some(start) = value_set(program.operations(edge)) {
            work.leaving[edge.index()] = Register::Constant(start);
        }
    }
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
        counting::make(context, counters, &waiting, location);
    }
    if counters.segments.is_some() {
        erase_unused(&work.made.into_inner());
    }
    places.into_replaced()
}

/// Takes values out that nothing uses. Those that use others come later in the list.
fn erase_unused(made: &[Value]) {
    made.iter().rev().filter(|value| value.users().next().is_none()).for_each(|value| value.erase());
}

/// Address of the calling thread's copy of the unit's counters, computed at the function's entry. `may_be_first`: some
/// thread may count here for the first time, so it is checked whether it has a region.
pub fn counters_of_thread(context: ModuleContext, function: Value, location: Option<LLVMMetadataRef>, may_be_first: bool) -> Value {
    let module = context.module;
    if !may_be_first {
        let builder = Builder::before(module, function.entry().behind_variables(), location);
        let bias = builder.load(module.i64(), context.bias);
        return builder.offset(module.i8(), context.counters, bias);
    }
    let (check, entry) = part_entry(module, function);
    let (base, end) = counters_at(context, check, location);
    Builder::at_end(module, end, location).jump(entry);
    base
}

/// Where code of the residual tier counts by itself: the address of the thread's copy, or of the template, whose
/// counters stay 0, while the runtime is to see each count. Computed at the function's entry; the thread has a region
/// then.
pub fn direct_counters_of_thread(context: ModuleContext, function: Value, direct_bias: Value, location: Option<LLVMMetadataRef>) -> Value {
    let module = context.module;
    let (check, entry) = part_entry(module, function);
    let (_, end) = counters_at(context, check, location);
    let builder = Builder::at_end(module, end, location);
    let copies = builder.offset(module.i8(), context.counters, builder.load(module.i64(), direct_bias));
    builder.jump(entry);
    copies
}

/// A new entry block with the stack's fixed variables; not ended yet. Gives it and the old one.
pub fn part_entry(module: Module, function: Value) -> (Block, Block) {
    let old = function.entry();
    let new = Block(llvm!(LLVMInsertBasicBlockInContext(module.context(), old.0, c"".as_ptr())));
    move_static_allocas(module, old, new);
    (new, old)
}

/// The same address, computed at the end of a block that is not ended yet, with the check whether the thread has a
/// region. Gives it and the block that is to be ended now.
pub fn counters_at(context: ModuleContext, check: Block, location: Option<LLVMMetadataRef>) -> (Value, Block) {
    let module = context.module;
    let (end, claim) = (new_block_behind(module, check), new_block_behind(module, check));
    let builder = Builder::at_end(module, check, location);
    let bias = builder.load(module.i64(), context.bias);
    let none = llvm!(LLVMBuildICmp(builder.raw(), LLVMIntPredicate::LLVMIntEQ, bias.0, module.constant(0).0, c"".as_ptr()));
    let branch = llvm!(LLVMBuildCondBr(builder.raw(), none, claim.0, end.0));
    mark_unlikely(module, Value(branch));
    let builder = Builder::at_end(module, claim, location);
    let claimed = call_enter(context, &builder);
    builder.jump(end);
    let builder = Builder::at_end(module, end, location);
    let known = Value(llvm!(LLVMBuildPhi(builder.raw(), module.i64(), c"".as_ptr())));
    known.add_incoming(&[(bias, check), (claimed, claim)]);
    (builder.offset(module.i8(), context.counters, known), end)
}

/// Moves the variables that the stack frame holds for the whole call to the end of another block.
pub fn move_static_allocas(module: Module, from: Block, to: Block) {
    let builder = Builder::at_end(module, to, None);
    for alloca in from.instructions().filter(is_static_alloca).collect::<Vec<_>>() {
        let location = alloca.location();
        llvm!(LLVMInstructionRemoveFromParent(alloca.0));
        builder.insert(alloca);
        alloca.set_location(location);
    }
}

fn is_static_alloca(instruction: &Value) -> bool {
    if llvm!(LLVMIsAAllocaInst(instruction.0)).is_null() {
        return false;
    }
    let size = llvm!(LLVMGetOperand(instruction.0, 0));
    !llvm!(LLVMIsAConstantInt(size)).is_null()
}

fn call_enter(context: ModuleContext, builder: &Builder) -> Value {
    let kind = llvm!(LLVMGlobalGetValueType(context.enter.0));
    let call = llvm!(LLVMBuildCall2(builder.raw(), kind, context.enter.0, std::ptr::null_mut(), 0, c"".as_ptr()));
    llvm!(LLVMSetInstructionCallConv(call, llvm!(LLVMGetFunctionCallConv(context.enter.0))));
    Value(call)
}

struct Work<'a> {
    context: ModuleContext,
    cfg: &'a FunctionCfg,
    graph: &'a Graph,
    program: &'a ProbeProgram,
    places: &'a Places,
    counters: Counters<'a>,
    /// Iterations that are counted at last, since blocks are split for that.
    flushes: RefCell<Vec<TripCountFlush>>,
    /// Counts that need blocks of their own.
    waiting: RefCell<Vec<Waiting>>,
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
    trip_counts: IndexMap<LoopId, (Number, Register)>,
    /// The number of dominant iteration that are held behind each edge's code, where some may be.
    in_register: Vec<Option<Value>>,
    /// Numbers of held iterations that are merged at the beginning of a block.
    holding: Vec<(Value, Block)>,
}

impl Work<'_> {
    /// The register at the beginning of a node.
    fn arriving(&mut self, node: Node) -> Register {
        if node == self.graph.entry() {
            let start = self.counters.segments.and_then(|s| s.start);
            return start.map_or(Register::Constant(0), Register::Computed);
        }
        if let Some(which) = self.program.loops().iter().position(|l| l.head == node) {
            return self.enter_loop(LoopId(which));
        }
        let live: Vec<Edge> = self.graph.incoming(node).iter().copied().filter(|e| !self.program.is_dead(*e)).collect();
        // Nothing is made of the register where every way on is counted already.
        if !self.graph.out(node).iter().any(|e| self.program.reads_register(*e)) {
            return Register::Constant(0);
        }
        if let Some(same) = self.same(&live) {
            return same;
        }
        let block = self.cfg.nodes[node.index()].expect("a dispatch block has one way in that restarts");
        let sources = predecessors(block);
        self.merge(block, &sources)
    }

    /// The register where a loop that is counted by iterations is entered; makes the number of its iterations.
    fn enter_loop(&mut self, which: LoopId) -> Register {
        let (module, counted_loop) = (self.context.module, self.program.loop_of(which));
        let head = self.cfg.nodes[counted_loop.head.index()].expect("a dispatch block heads no loop of one path");
        let latch = self.cfg.nodes[self.graph.from(counted_loop.back).index()].expect("a dispatch block is in no loop of one path");
        let from = predecessors(head);
        let at_top =
            || Builder::phi_before(module, head.instructions().next().expect("a block has a terminator"), module.i64(), self.location);
        let make_counter = || {
            let number = at_top();
            let next = Builder::before(module, latch.terminator(), self.location).add(number, module.constant(1));
            let start = |b: Block| if b == latch { next } else { module.constant(0) };
            number.add_incoming(&from.iter().map(|b| (start(*b), *b)).collect::<Vec<_>>());
            Counter { value: number, first: 0, shift: 0 }
        };
        let number = match counted_loop.trip_count {
            Some(times) => Number::Always(times as i64),
            None => trip_count::counter(latch, head).map_or_else(|| Number::Made(make_counter()), Number::Counted),
        };
        let outside: Vec<Edge> = self
            .graph
            .incoming(counted_loop.head)
            .iter()
            .copied()
            .filter(|e| *e != counted_loop.back && !self.program.is_dead(*e))
            .collect();
        let entered = self.same(&outside).unwrap_or_else(|| {
            let phi = at_top();
            let brought = |b: Block| if b == latch { phi } else { self.value(self.brought(b, head)) };
            phi.add_incoming(&from.iter().map(|b| (brought(*b), *b)).collect::<Vec<_>>());
            Register::Computed(phi)
        });
        self.trip_counts.insert(which, (number, entered));
        entered
    }

    /// What the program counts of a loop's iterations, as it is on an edge out of the loop. Code generation is not shown
    /// how it comes about: it would keep another counter in the loop, from which the number follows by an instruction
    /// less. (A counter that was made is shown: code generation may find that it is the difference of two addresses.)
    fn on_exit_edge(&self, builder: &Builder, counter: Counter, counted_loop: &TripCountedLoop, edge: Edge) -> Counter {
        let from = self.graph.from(edge);
        let next =
            self.cfg.nodes[from.index()].filter(|_| from == self.graph.from(counted_loop.back)).and_then(|latch| counter.next(latch));
        let counter = next.unwrap_or(counter);
        Counter { value: builder.opaque(counter.value), ..counter }
    }

    /// Counts the iterations of a loop that is left; returns the register.
    fn flush(&self, builder: &Builder, of: LoopId, partial: i64, edge: Edge) -> Register {
        let module = self.context.module;
        let counted_loop = self.program.loop_of(of);
        let (number, entered) = self.trip_counts[&of];
        let start = Register::Constant(counted_loop.start);
        let number = match number {
            Number::Always(times) => {
                self.count(builder, entered, counted_loop.increment, module.constant(1));
                self.count(builder, start, counted_loop.increment, module.constant(times - 1));
                return self.plus(builder, start, partial);
            }
            Number::Made(number) => number,
            Number::Counted(number) => self.on_exit_edge(builder, number, counted_loop, edge),
        };
        if entered == start {
            self.count(builder, start, counted_loop.increment, number.less(module, builder, 0));
            return self.plus(builder, start, partial);
        }
        let none = builder.compare(LLVMIntPredicate::LLVMIntEQ, number.value, module.constant(number.first));
        let some = llvm!(LLVMBuildNot(builder.raw(), none.0, c"".as_ptr()));
        let choose = || {
            let (without, with) = (self.plus(builder, entered, partial), self.plus(builder, start, partial));
            Value(llvm!(LLVMBuildSelect(builder.raw(), some, self.value(with).0, self.value(without).0, c"".as_ptr())))
        };
        if self.counters.flushing == Flushing::Jumping {
            let choice = choose();
            // What is used later has to be used now: values may be replaced by others until then.
            let entered = Value(llvm!(LLVMBuildAdd(builder.raw(), self.value(entered).0, module.constant(0).0, c"".as_ptr())));
            self.flushes.borrow_mut().push(TripCountFlush { choice, none, number, entered, start, increment: counted_loop.increment });
            return Register::Computed(choice);
        }
        let first = Value(llvm!(LLVMBuildZExt(builder.raw(), some, module.i64(), c"".as_ptr())));
        self.count(builder, entered, counted_loop.increment, first);
        let others = Value(llvm!(LLVMBuildSub(builder.raw(), number.less(module, builder, 0).0, first.0, c"".as_ptr())));
        self.count(builder, start, counted_loop.increment, others);
        Register::Computed(choose())
    }

    /// Counts the iterations of a loop where the register is chosen, unless there were none.
    fn jump_over(&self, flush: TripCountFlush) {
        let (module, TripCountFlush { choice, none, number, entered, start, increment }) = (self.context.module, flush);
        let block = choice.block();
        let operand = |of: Value, index: u32| Value(llvm!(LLVMGetOperand(of.0, index)));
        let (with, without) = (operand(choice, 1), operand(choice, 2));
        // Its phi node may have been replaced since.
        let number = Counter { value: operand(none, 0), ..number };
        let rest = split_off_behind(module, choice);
        let counting = new_block_behind(module, block);
        llvm!(LLVMBuildCondBr(Builder::at_end(module, block, self.location).raw(), none.0, rest.0, counting.0));
        let builder = Builder::at_end(module, counting, self.location);
        if !llvm!(LLVMIsAInstruction(entered.0)).is_null() {
            llvm!(LLVMInstructionRemoveFromParent(entered.0));
            builder.insert(entered);
        }
        self.count(&builder, Register::Computed(entered), increment, module.constant(1));
        self.count(&builder, start, increment, number.less(module, &builder, 1));
        builder.jump(rest);
        let first = rest.instructions().next().expect("a block has a terminator");
        let register = Builder::phi_before(module, first, module.i64(), self.location);
        register.add_incoming(&[(without, block), (with, counting)]);
        choice.replace_uses(register);
        choice.erase();
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
        let phi = Builder::phi_before(module, block.instructions().next().expect("a block has a terminator"), module.i64(), self.location);
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
        let at = |place: &Place| Builder::before(self.context.module, place.instruction(), self.location);
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
        let stream = self.counters.stream.expect("a program that emits is of a stream build");
        let call_ends = following.iter().find(|o| **o != Operation::NoteCall) == Some(&Operation::LeaveCall);
        self.appended = Some(stream.path(code, self.address(code, register, increment), call_ends));
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
            Operation::Check { increment } => {
                let path = self.value(self.plus(code, register, increment));
                self.waiting.borrow_mut().push(Waiting::at(self.context.module, code, path, one, Lookup::Needed));
            }
            Operation::FlushDominant(which) => self.flush_dominant(code, which, edge),
            Operation::CountHits(hits) => self.count_hits(code, hits),
            Operation::NoteCall => {
                let path = self.appended.expect("a path is appended before it is noted");
                self.counters.stream.expect("a program that notes calls is of a stream build").note(code, path);
            }
            Operation::LeaveCall => self.counters.stream.expect("a program that leaves calls is of a stream build").leave(code),
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
        let (Some(first), module) = (self.counters.hits, self.context.module) else { return };
        for (word, by) in [(first, hits.labels), (first + 1, hits.all)].into_iter().filter(|(_, by)| *by > 0) {
            let address = builder.offset(module.i64(), self.counters.base, module.constant(word as i64));
            self.counters.add(module, builder, address, module.constant(by as i64));
        }
    }

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

    /// `count[register + increment] += by`
    fn count(&self, builder: &Builder, register: Register, increment: i64, by: Value) {
        let module = self.context.module;
        if let Some(segments) = self.counters.segments {
            let sum = self.plus(builder, register, increment);
            let known = if let Register::Constant(known) = sum { Some(known) } else { None };
            return segments.path_ends(module, builder, (self.edge, self.location), (known, self.value(sum)), &self.counters);
        }
        if self.counters.need_blocks() {
            let path = self.value(self.plus(builder, register, increment));
            return self.waiting.borrow_mut().push(Waiting::at(module, builder, path, by, Lookup::Decided));
        }
        if let Some(words) = self.counters.words {
            return self.count_word(builder, self.plus(builder, register, increment), words, by);
        }
        let address = self.address(builder, register, increment);
        if let Some(events) = self.counters.events.filter(|_| self.path_ends) {
            events.end(module, builder, address);
        }
        self.counters.add(module, builder, address, by);
    }

    /// The address of `count[register + increment]`, in an array.
    fn address(&self, builder: &Builder, register: Register, increment: i64) -> Value {
        let (module, base) = (self.context.module, self.counters.base);
        let fixed = (self.counters.first as i64).wrapping_add(increment);
        let cells = self.counters.events.map_or(module.i64(), |e| e.cells);
        match register {
            Register::Constant(c) => builder.offset(cells, base, module.constant(fixed.wrapping_add(c))),
            Register::Computed(value) => {
                let base = builder.offset(cells, base, module.constant(fixed));
                builder.offset(cells, base, value)
            }
        }
    }

    /// `count[register + increment] += 1`, which is mostly `count[dominant]`. Gives the dominant iteration that are held then.
    fn count_split(&self, builder: &Builder, register: Register, increment: i64, dominant: &DominantIteration) -> Option<Value> {
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
                let holds = builder.compare(LLVMIntPredicate::LLVMIntEQ, value, module.constant(dominant.index.wrapping_sub(increment)));
                let more = in_register.map(|in_register| (in_register, builder.add(in_register, one)));
                let waiting = Waiting::at(module, builder, path, one, Lookup::Decided);
                let choice = more
                    .map(|(in_register, more)| Value(llvm!(LLVMBuildSelect(builder.raw(), holds.0, more.0, in_register.0, c"".as_ptr()))));
                self.waiting.borrow_mut().push(waiting.mostly(holds, dominant.index, choice));
                choice
            }
        }
    }

    /// The number of dominant iteration that are held at the beginning of a node; none where there cannot be any.
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
        let number =
            Builder::phi_before(module, block.instructions().next().expect("a block has a terminator"), module.i64(), self.location);
        // What iterates to the head is known later.
        self.holding.push((number, block));
        Some(number)
    }

    fn in_register_from(&self, from: Block, to: Block) -> Option<Value> {
        self.places.arrival(from, to).and_then(|edge| self.in_register[edge.index()])
    }

    /// Says what the numbers of held iterations are merged of.
    fn merge_in_register(&mut self) {
        for (number, block) in std::mem::take(&mut self.holding) {
            let value = |from: Block| self.in_register_from(from, block).unwrap_or_else(|| self.context.module.constant(0));
            number.add_incoming(&predecessors(block).into_iter().map(|from| (value(from), from)).collect::<Vec<_>>());
        }
    }

    /// Counts in the word of a path that was asked for, or in that of all others.
    fn count_word(&self, builder: &Builder, register: Register, words: Words, by: Value) {
        let module = self.context.module;
        let first = self.counters.first;
        let address = match register {
            Register::Constant(c) => {
                let word = first + words.of_constant(c);
                builder.offset(module.i64(), self.counters.base, module.constant(word as i64))
            }
            Register::Computed(value) => {
                let base = builder.offset(module.i64(), self.counters.base, module.constant(first as i64));
                builder.offset(module.i64(), base, words.of(module, builder, value))
            }
        };
        self.counters.add(module, builder, address, by);
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
