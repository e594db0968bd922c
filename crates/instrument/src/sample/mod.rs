//! Sampling: checking code and duplicated code of each function; only the duplicated code counts, while a switch is on.
//!
//! The published framework (Arnold and Ryder, "A framework for reducing the cost of instrumented code", PLDI 2001; bursts:
//! Hirzel and Chilimbi, "Bursty tracing", 2001), with another trigger: the program does not count down; a byte in a
//! page of its own says which version is to run, and the recorder flips it from outside. Control changes versions
//! only where a path begins: at the function's entry and on back edges ([`checks`] chooses which), and where indirect
//! branches arrive. So every path that is counted was executed wholly in the instrumented code.
//!
//! The original blocks stay the checking code; copies ([`copies`]) get the probes. In both, a chosen back edge goes
//! through a block that checks:
//!
//! ```text
//!   fast:     tail --> check --off--> head           counted:  tail' --> count, check --on--> head'
//!                        `--on--> acquire region --> head'                      `--off--> head
//! ```
//!
//! A short loop has its check once in several iterations, the checking code being unrolled ([`unroll`]).
//!
//! Values that live where versions meet are merged there ([`ssa`]). Indirect branches have addresses of blocks in data:
//! each version gets tables of its own ([`dispatch`]). Where that cannot be, both jump to the same block, which looks
//! at the switch and goes on in one of them. A function in which versions change nowhere but at its entry becomes two:
//! itself and `NAME.counted`, to which it jumps if the switch is on; so the checking code's frame does not grow. If it
//! leaves the decision to its callers, it stays untouched, and counted code calls the other.

mod checks;
pub mod copies;
mod dispatch;
mod double;
mod latch;
pub mod ssa;
mod steps;
mod unroll;

use crate::attributes::{self, declare_like};
use crate::counting::Counters;
use crate::describe::{EdgeSite, FunctionCfg};
use crate::entry;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::module_context::ModuleContext;
use crate::probes;
use crate::shape::move_to_new_block;
use crate::weights;
use copies::{Copies, Lines};
use double::Double;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::comdat::{LLVMGetComdat, LLVMSetComdat};
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;
use llvm_sys::{LLVMIntPredicate, LLVMOpcode, LLVMTailCallKind};
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::{Choices, DominantCounting, TripCounting};
use trodden_flow::{Edge, Graph, Node, ProbeProgram};
use trodden_unit::{FlowEdge, Position, UnitBlock};

pub use checks::reason_not_to_double;
use checks::{CheckSites, CheckedFunction};

/// A function with its plan, before anything is inserted.
pub struct PlannedFunction {
    /// The function.
    pub function: Value,
    /// Where it is declared.
    pub position: Option<Position>,
    /// Its description; sites and nodes are those of its blocks as they are.
    pub cfg: FunctionCfg,
    /// Its graph.
    pub graph: Graph,
    /// What is to be inserted; the passes are run when that is done.
    pub program: ProbeProgram,
    /// How often its edges are executed, by estimate.
    pub frequencies: Frequencies,
    /// Whether that was measured.
    pub measured: bool,
    /// Whether other code than sampled functions of this unit may call it.
    pub open: bool,
    /// Of a stream build whose graph has more edges than a counting build has: what a counting build has.
    pub counted: Option<Box<CountedPaths>>,
}

/// A function's paths as a counting build numbers them, where the program appends more events than paths.
pub struct CountedPaths {
    /// The blocks.
    pub blocks: Vec<UnitBlock>,
    /// The edges.
    pub edges: Vec<FlowEdge>,
    /// The program that would count.
    pub program: ProbeProgram,
    /// The edges that the events' graph has besides, with the blocks that they leave.
    pub besides: Vec<(Edge, Node)>,
}

/// The tier's decisions for a unit.
pub struct SampleTier {
    context: ModuleContext,
    switch: Value,
    /// Functions that are two, with their counted versions.
    counted: IndexMap<Value, Value>,
    /// Those of them that leave the decision to their callers: counted code calls the instrumented code.
    left_to_callers: IndexMap<Value, Value>,
    /// The loops of each function that check.
    sites: IndexMap<Value, CheckSites>,
    /// Which of the others are counted by iterations.
    iterations: TripCounting,
}

impl SampleTier {
    /// Decides which functions become two; makes the second ones, still empty.
    pub fn new(context: ModuleContext, functions: &[PlannedFunction], iterations: TripCounting) -> SampleTier {
        let switch = crate::emit::declare_switch(context.module);
        let seldom = seldom_called(functions);
        let sites: IndexMap<Value, CheckSites> = functions.iter().map(|f| (f.function, f.check_sites(&seldom))).collect();
        let two: Vec<&PlannedFunction> = functions.iter().filter(|f| !f.jumps_by_address() && sites[&f.function].is_empty()).collect();
        let candidates: Vec<Value> = two.iter().filter(|f| !f.open).map(|f| f.function).collect();
        let is_candidate: IndexSet<Value> = candidates.iter().copied().collect();
        let callees = |f: &Value| -> Vec<Value> {
            let calls = f.blocks().flat_map(|b| b.instructions().collect::<Vec<_>>()).filter(|i| i.is_call());
            calls.map(Value::callee).filter(|c| is_candidate.contains(c)).collect()
        };
        let mut calls: IndexMap<Value, Vec<Value>> = candidates.iter().map(|f| (*f, callees(f))).collect();
        for planned in two.iter().filter(|f| checks::recurs_once(f.function, &f.cfg, &f.graph, f.program.dag())) {
            calls.entry(planned.function).or_default().retain(|c| *c != planned.function);
        }
        let without_entry = checks::without_entry(&candidates, &calls);
        let counted: IndexMap<Value, Value> = two.iter().map(|f| (f.function, declare_counted(context.module, f.function))).collect();
        let left_to_callers = counted.iter().map(|(f, c)| (*f, *c)).filter(|(f, _)| without_entry.contains(f)).collect();
        SampleTier { context, switch, counted, left_to_callers, sites, iterations }
    }

    /// Makes a function's instrumented code, with its probes.
    ///
    /// # Errors
    /// Says why, if its probes are such that control cannot change versions.
    pub fn insert(&self, planned: &mut PlannedFunction, first_counter: u64) -> Result<(), String> {
        self.run_passes(planned);
        match self.counted.get(&planned.function) {
            Some(&counted) => self.fill(planned, counted, first_counter),
            None => Double::insert(self, planned, first_counter)?,
        }
        Ok(())
    }

    /// When the instrumented code counts what. Counts stay at the ends of their paths: an early one could be made before
    /// versions change, for a path that is then executed in the other. Loops are counted by iterations if versions do not
    /// change in them.
    fn run_passes(&self, planned: &mut PlannedFunction) {
        let PlannedFunction { cfg, graph, program, frequencies, .. } = planned;
        let mut blocks = crate::places::block_properties(cfg, graph);
        let sites = &self.sites[&planned.function];
        blocks.crossed = sites.each_iteration.iter().copied().chain(sites.unrolled.iter().map(|l| l.back)).collect();
        probes::run_passes(
            program,
            frequencies,
            &blocks,
            Choices { trip_counts: self.iterations, early: false, dominant: DominantCounting::Shared },
        );
    }

    /// The functions that hold the code of a function now.
    pub fn parts(&self, function: Value) -> Vec<Value> {
        [Some(function), self.counted.get(&function).copied()].into_iter().flatten().collect()
    }

    /// Makes the instrumented code of a function that becomes two.
    fn fill(&self, planned: &PlannedFunction, counted: Value, first_counter: u64) {
        let mut known = self.left_to_callers.clone();
        known.extend(planned.function.parameters().into_iter().zip(counted.parameters()));
        let blocks: Vec<Block> = planned.function.blocks().collect();
        let copies = Copies::make(self.context.module, &blocks, counted, &known, Lines::Drop);
        let cfg = moved(&planned.cfg, &copies);
        // Where callers that count call it, the thread has a region.
        let is_left = self.left_to_callers.contains_key(&planned.function);
        let base = entry::counters_of_thread(self.context, counted, None, !is_left);
        let counters = Counters::own(base, first_counter);
        probes::insert(self.context, counted, &cfg, &planned.program, counters);
        if !is_left {
            self.check_at_entry(planned.function, counted);
        }
    }

    /// Lets a function begin with a check, and its instrumented code take its place if that is on: by a
    /// jump, so that the checking code's frame is its own.
    fn check_at_entry(&self, function: Value, counted: Value) {
        let (module, location) = (self.context.module, crate::debug::no_line(self.context.module, function));
        let (entry, old) = entry::new_entry(module, function);
        let instead = Block(llvm!(LLVMAppendBasicBlockInContext(module.context(), function.0, c"".as_ptr())));
        let builder = Builder::at_end(module, instead, location);
        let parameters = function.parameters();
        let call = builder.call(counted, &parameters);
        llvm!(LLVMSetInstructionCallConv(call.0, llvm!(LLVMGetFunctionCallConv(function.0))));
        for index in 0..=parameters.len() as u32 {
            attributes::of_function(function, index).into_iter().for_each(|a| llvm!(LLVMAddCallSiteAttribute(call.0, index, a)));
        }
        llvm!(LLVMSetTailCallKind(call.0, LLVMTailCallKind::LLVMTailCallKindMustTail));
        match call.is_void() {
            true => llvm!(LLVMBuildRetVoid(builder.raw())),
            false => llvm!(LLVMBuildRet(builder.raw(), call.0)),
        };
        self.insert_check(entry, instead, old, location);
    }

    /// Ends a block: goes to `on` if the switch is on, else to `off`.
    fn insert_check(&self, block: Block, on: Block, off: Block, location: Option<LLVMMetadataRef>) {
        let module = self.context.module;
        let builder = Builder::at_end(module, block, location);
        let value = builder.load(module.i8(), self.switch);
        // It changes behind the compiler's back.
        llvm!(LLVMSetVolatile(value.0, 1));
        let zero = Value(llvm!(LLVMConstInt(module.i8(), 0, 0)));
        let is_on = builder.compare(LLVMIntPredicate::LLVMIntNE, value, zero);
        weights::mark_unlikely(module, builder.branch(is_on, on, off));
    }
}

impl PlannedFunction {
    /// The loops that check.
    fn check_sites(&self, seldom: &IndexSet<Value>) -> CheckSites {
        let of = if self.function.name() == "main" {
            CheckedFunction::Main
        } else if seldom.contains(&self.function) {
            CheckedFunction::Seldom
        } else {
            CheckedFunction::Other
        };
        checks::check_sites(&self.cfg, &self.graph, self.program.dag(), &self.frequencies, of, self.jumps_by_address())
    }

    fn jumps_by_address(&self) -> bool {
        self.function.blocks().any(|b| b.terminator().is(LLVMOpcode::LLVMIndirectBr))
    }

    /// The functions that it calls directly, each with whether it does so in a loop.
    fn calls(&self) -> Vec<(Value, bool)> {
        let repeated = checks::in_loops(&self.cfg, &self.graph, self.program.dag());
        let of_node = |n: Node| {
            let calls =
                self.cfg.block(n).into_iter().flat_map(|b| b.instructions().filter(|i| i.is_call()).map(Value::callee).collect::<Vec<_>>());
            let repeated = repeated.contains(&n);
            calls.map(move |callee| (callee, repeated))
        };
        self.graph.nodes().flat_map(of_node).collect()
    }
}

/// The functions that are called a few times, as far as their unit says: `main`, and those that only such functions
/// call, and in no loop. Any other may be called millions of times.
fn seldom_called(functions: &[PlannedFunction]) -> IndexSet<Value> {
    let calls: IndexMap<Value, Vec<(Value, bool)>> = functions.iter().map(|f| (f.function, f.calls())).collect();
    let mut callers: IndexMap<Value, Vec<(Value, bool)>> = IndexMap::new();
    for (caller, callees) in &calls {
        callees.iter().for_each(|(callee, repeated)| callers.entry(*callee).or_default().push((*caller, *repeated)));
    }
    let mut seldom: IndexSet<Value> = functions.iter().map(|f| f.function).filter(|f| f.name() == "main").collect();
    let mut work: Vec<Value> = seldom.iter().copied().collect();
    while let Some(function) = work.pop() {
        for (callee, _) in calls.get(&function).into_iter().flatten() {
            let is_seldom = callers[callee].iter().all(|(caller, repeated)| seldom.contains(caller) && !repeated);
            if is_seldom && seldom.insert(*callee) {
                work.push(*callee);
            }
        }
    }
    seldom
}

/// A function of the same kind for the instrumented code.
fn declare_counted(module: Module, function: Value) -> Value {
    let kind = llvm!(LLVMGlobalGetValueType(function.0));
    let counted = declare_like(module, function, &format!("{}.counted", function.name()), kind);
    crate::emit::add_attribute(module, counted, "cold");
    let comdat = llvm!(LLVMGetComdat(function.0));
    if !comdat.is_null() {
        llvm!(LLVMSetComdat(counted.0, comdat));
    }
    counted
}

/// The description, of the copies.
pub fn moved(cfg: &FunctionCfg, copies: &Copies) -> FunctionCfg {
    let site = |site: &EdgeSite| match site {
        EdgeSite::Before(i) => EdgeSite::Before(copies.value(*i)),
        EdgeSite::BeforeThenHead(i) => EdgeSite::BeforeThenHead(copies.value(*i)),
        other => other.clone(),
    };
    FunctionCfg {
        nodes: cfg.nodes.iter().map(|n| n.map(|b| copies.block(b))).collect(),
        sites: cfg.sites.iter().map(site).collect(),
        ..cfg.clone()
    }
}

/// The blocks where indirect branches arrive.
pub fn landings(function: Value) -> Vec<Block> {
    let jumps = function.blocks().map(Block::terminator).filter(|t| t.is(LLVMOpcode::LLVMIndirectBr));
    let targets: IndexSet<Block> = jumps.flat_map(Value::successors).collect();
    // In the order of the function's blocks: addresses are none.
    function.blocks().filter(|b| targets.contains(b)).collect()
}

/// Lets these blocks, where indirect branches arrive, keep their phi nodes only; gives each with the block that has the rest.
pub fn part_landings(module: Module, landings: &[Block], cfg: &mut FunctionCfg) -> Vec<(Block, Block)> {
    let mut parts = Vec::new();
    for &landing in landings {
        let body = move_to_new_block(module, landing);
        cfg.nodes.iter_mut().filter(|n| **n == Some(landing)).for_each(|n| *n = Some(body));
        parts.push((landing, body));
    }
    parts
}
