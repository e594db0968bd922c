//! Carries out a plan: puts the path register and the counts into a function.
//!
//! The register is no variable in memory: it is built directly in SSA form, in one pass over the acyclic graph. Cut edges all set it to a constant, so
//! no value flows against the order. As long as a path's sum is a constant no instruction is made for it; initialisation sinks to where it is
//! needed, and the increments at a path's end become part of the counter's address.
//!
//! First the edges get places for their code ([`crate::places`] splits edges and landing pads); then the code is made, block by block in topological
//! order.

use crate::describe::Draft;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::places::{Place, Places};
use crate::shape::{new_block_behind, predecessors};
use llvm_sys::LLVMIntPredicate;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;
use trodden_flow::plan::Action;
use trodden_flow::{Edge, Graph, Node, Plan};

/// What the code refers to outside the function.
#[derive(Clone, Copy)]
pub struct Surroundings {
    /// The module.
    pub module: Module,
    /// The unit's counters.
    pub counters: Value,
    /// The thread-local bias.
    pub bias: Value,
    /// The runtime's function that claims a region.
    pub enter: Value,
}

/// The path register's value at some point.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Register {
    Constant(i64),
    Computed(Value),
}

/// Inserts a function's probes. `base` is the address of the thread's counters, as [`counters_of_thread`] gives it. Gives the values that
/// had to be replaced (and are no more) with what took their places.
pub fn insert(
    around: Surroundings,
    function: Value,
    draft: &Draft,
    graph: &Graph,
    plan: &Plan,
    first_counter: u64,
    base: Value,
) -> Vec<(Value, Value)> {
    let location = crate::debug::no_line(around.module, function);
    let actions: Vec<Action> = graph.edges().map(|e| plan.action(graph, e)).collect();
    let places = Places::make(around.module, draft, graph, &actions, location);
    let mut work = Work {
        around,
        draft,
        graph,
        actions: &actions,
        places: &places,
        base,
        first_counter: first_counter as i64,
        location,
        leaving: vec![Register::Constant(0); graph.edge_count()],
    };
    for edge in graph.edges() {
        if let Action::CountAndRestart { start, .. } = actions[edge.index()] {
            work.leaving[edge.index()] = Register::Constant(start);
        }
    }
    for &node in plan.dag.order().iter().filter(|n| **n != graph.exit()) {
        let edges: Vec<Edge> = graph.out(node).iter().copied().filter(|e| !places.is_moved(*e)).collect();
        if !edges.is_empty() {
            let arriving = work.arriving(node);
            edges.into_iter().for_each(|e| work.take(e, arriving));
        }
    }
    places.into_replaced()
}

/// Copies the flags of a floating-point operation.
pub fn copy_fast_math(from: Value, to: Value) {
    if llvm!(LLVMCanValueUseFastMathFlags(from.0)) != 0 {
        llvm!(LLVMSetFastMathFlags(to.0, llvm!(LLVMGetFastMathFlags(from.0))));
    }
}

/// Address of the calling thread's copy of the unit's counters, computed at the function's entry. `may_be_first`: some thread may count here for the first
/// time, so it is checked whether it has a region.
pub fn counters_of_thread(around: Surroundings, function: Value, location: Option<LLVMMetadataRef>, may_be_first: bool) -> Value {
    let module = around.module;
    let entry = function.blocks().next().expect("a definition has an entry");
    let is_alloca = |i: &Value| !llvm!(LLVMIsAAllocaInst(i.0)).is_null();
    let first = entry.instructions().find(|i| !is_alloca(i)).expect("a block has a terminator");
    if !may_be_first {
        let builder = Builder::before(module, first, location);
        let bias = builder.load(module.i64(), around.bias);
        return builder.offset(module.i8(), around.counters, bias);
    }
    let check = new_block_before(module, entry);
    move_static_allocas(module, entry, check);
    let (base, end) = counters_at(around, check, location);
    Builder::at_end(module, end, location).jump(entry);
    base
}

/// The same address, computed at the end of a block that is not ended yet, with the check whether the thread has a region. Gives it and the block that is to be ended now.
pub fn counters_at(around: Surroundings, check: Block, location: Option<LLVMMetadataRef>) -> (Value, Block) {
    let module = around.module;
    let (end, claim) = (new_block_behind(module, check), new_block_behind(module, check));
    let builder = Builder::at_end(module, check, location);
    let bias = builder.load(module.i64(), around.bias);
    let none = llvm!(LLVMBuildICmp(builder.raw(), LLVMIntPredicate::LLVMIntEQ, bias.0, module.constant(0).0, c"".as_ptr()));
    let branch = llvm!(LLVMBuildCondBr(builder.raw(), none, claim.0, end.0));
    mark_unlikely(module, Value(branch));
    let builder = Builder::at_end(module, claim, location);
    let claimed = call_enter(around, &builder);
    builder.jump(end);
    let builder = Builder::at_end(module, end, location);
    let known = Value(llvm!(LLVMBuildPhi(builder.raw(), module.i64(), c"".as_ptr())));
    known.add_incoming(&[(bias, check), (claimed, claim)]);
    (builder.offset(module.i8(), around.counters, known), end)
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

fn new_block_before(module: Module, block: Block) -> Block {
    Block(llvm!(LLVMInsertBasicBlockInContext(module.context(), block.0, c"".as_ptr())))
}

fn call_enter(around: Surroundings, builder: &Builder) -> Value {
    let kind = llvm!(LLVMGlobalGetValueType(around.enter.0));
    let call = llvm!(LLVMBuildCall2(builder.raw(), kind, around.enter.0, std::ptr::null_mut(), 0, c"".as_ptr()));
    llvm!(LLVMSetInstructionCallConv(call, llvm!(LLVMGetFunctionCallConv(around.enter.0))));
    Value(call)
}

/// Tells code generation that a branch's first way is hardly ever taken.
pub fn mark_unlikely(module: Module, branch: Value) {
    let context = module.context();
    let i32 = llvm!(LLVMInt32TypeInContext(context));
    let name = "branch_weights";
    let mut operands = [
        llvm!(LLVMMDStringInContext2(context, name.as_ptr().cast(), name.len())),
        llvm!(LLVMValueAsMetadata(llvm!(LLVMConstInt(i32, 1, 0)))),
        llvm!(LLVMValueAsMetadata(llvm!(LLVMConstInt(i32, (1 << 20) - 1, 0)))),
    ];
    let node = llvm!(LLVMMDNodeInContext2(context, operands.as_mut_ptr(), operands.len()));
    let kind = llvm!(LLVMGetMDKindIDInContext(context, c"prof".as_ptr(), 4));
    llvm!(LLVMSetMetadata(branch.0, kind, llvm!(LLVMMetadataAsValue(context, node))));
}

struct Work<'a> {
    around: Surroundings,
    draft: &'a Draft,
    graph: &'a Graph,
    actions: &'a [Action],
    places: &'a Places,
    base: Value,
    first_counter: i64,
    location: Option<LLVMMetadataRef>,
    /// The register behind each edge's code.
    leaving: Vec<Register>,
}

impl Work<'_> {
    /// The register at the beginning of a node.
    fn arriving(&self, node: Node) -> Register {
        if node == self.graph.entry() {
            return Register::Constant(0);
        }
        let live: Vec<Edge> = self.graph.incoming(node).iter().copied().filter(|e| self.actions[e.index()] != Action::Dead).collect();
        if let Some(same) = self.same(&live) {
            return same;
        }
        let block = self.draft.nodes[node.index()].expect("a hub has one way in that restarts");
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
        let module = self.around.module;
        let incoming: Vec<(Value, Block)> = sources.iter().map(|&from| (self.value(self.brought(from, block)), from)).collect();
        let phi = Builder::phi_before(module, block.instructions().next().expect("a block has a terminator"), module.i64(), self.location);
        phi.add_incoming(&incoming);
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
            Register::Constant(c) => self.around.module.constant(c),
            Register::Computed(value) => value,
        }
    }

    /// Makes the code of an edge.
    fn take(&mut self, edge: Edge, arriving: Register) {
        let at = |place: &Place| Builder::before(self.around.module, place.instruction(), self.location);
        let code = self.places.code(edge);
        let after = match (self.actions[edge.index()], code) {
            (Action::Dead, _) => return,
            (Action::Add { increment: 0 }, _) => arriving,
            (Action::Add { increment }, Some(place)) => self.plus(&at(place), arriving, increment),
            (Action::Count { increment }, Some(place)) => {
                self.count(&at(place), arriving, increment);
                arriving
            }
            (Action::CountAndRestart { increment, start }, Some(place)) => {
                self.count(&at(place), arriving, increment);
                Register::Constant(start)
            }
            (action, None) => unreachable!("{action:?} has no place"),
        };
        self.leaving[edge.index()] = after;
        // A block that only returns is counted on the edges into it.
        if let Some(increment) = self.places.return_behind(edge) {
            let place = code.expect("edges to such a block have a place");
            self.count(&at(place), after, increment);
        }
    }

    fn plus(&self, builder: &Builder, register: Register, increment: i64) -> Register {
        match register {
            Register::Constant(c) => Register::Constant(c.wrapping_add(increment)),
            Register::Computed(value) => Register::Computed(builder.add(value, self.around.module.constant(increment))),
        }
    }

    /// `count[register + increment] += 1`
    fn count(&self, builder: &Builder, register: Register, increment: i64) {
        let module = self.around.module;
        let fixed = self.first_counter.wrapping_add(increment);
        let address = match register {
            Register::Constant(c) => builder.offset(module.i64(), self.base, module.constant(fixed.wrapping_add(c))),
            Register::Computed(value) => {
                let base = builder.offset(module.i64(), self.base, module.constant(fixed));
                builder.offset(module.i64(), base, value)
            }
        };
        let old = builder.load(module.i64(), address);
        let new = builder.add(old, module.constant(1));
        builder.store(new, address);
    }
}
