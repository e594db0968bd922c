//! Instruments functions for the sampling tier: each function has two versions, checking code and instrumented code, and control is in the
//! instrumented code, which counts, while a switch is on. This is the framework of Arnold and Ryder, "A framework for reducing the cost of
//! instrumented code" (PLDI 2001), with the bursts of Hirzel and Chilimbi, "Bursty tracing" (2001), and a different trigger: instead of a
//! countdown, a byte in a separate page selects the version, and the recorder changes this byte from outside. Control changes versions only
//! where a path starts: at function entry, on back edges that [`checks`] chooses, and where indirect branches arrive. So every counted path
//! was executed entirely in instrumented code. [`crate::versions`] copies the code; [`unroll`] and [`dispatch`] reduce the cost of checks.
//! A function that only checks at its entry is split into two functions, itself and `NAME.counted`.

mod checks;
mod dispatch;
mod double;
mod latch;
mod steps;
mod unroll;

use crate::attributes::declare_with_attributes_of;
use crate::counting::CounterAccess;
use crate::entry;
use crate::llvm::{Block, Builder, DebugLocation, Module, Value};
use crate::module_context::ModuleContext;
use crate::planned_function::PlannedFunction;
use crate::probes;
use crate::program_passes;
use crate::versions::cfg_of_copies;
use crate::versions::copies::{CopiedLinePolicy, CopyMapping};
use crate::weights;
use checks::{CallFrequency, CheckSites};
use double::DoubledFunction;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::{LLVMIntPredicate, LLVMOpcode, LLVMTailCallKind};
use trodden_flow::Node;
use trodden_flow::program::{PassChoices, TripCounting};

pub struct SampleTier {
    context: ModuleContext,
    switch: Value,
    /// Functions that were split in two, each with its counted version.
    counted: IndexMap<Value, Value>,
    /// Split functions that leave the check to their callers, each with its counted version, which instrumented code calls directly.
    left_to_callers: IndexMap<Value, Value>,
    /// The loops in each function that check the switch.
    sites: IndexMap<Value, CheckSites>,
    /// How to count the iterations of loops without a check.
    iterations: TripCounting,
}

impl SampleTier {
    /// Chooses the functions that are split into two, and declares their counted versions.
    pub fn new(context: ModuleContext, functions: &[PlannedFunction], iterations: TripCounting) -> SampleTier {
        let switch = crate::emit::declare_sampling_switch(context.module);
        let rare = find_rarely_called(functions);
        let sites: IndexMap<Value, CheckSites> = functions.iter().map(|f| (f.function, f.choose_check_sites(&rare))).collect();
        let two: Vec<&PlannedFunction> = functions.iter().filter(|f| !f.jumps_by_address() && sites[&f.function].is_empty()).collect();
        let candidates: Vec<Value> = two.iter().filter(|f| !f.may_lack_region).map(|f| f.function).collect();
        let is_candidate: IndexSet<Value> = candidates.iter().copied().collect();
        let callees = |f: &Value| -> Vec<Value> {
            let calls = f.blocks().flat_map(|b| b.instructions().collect::<Vec<_>>()).filter(|i| i.is_call());
            calls.map(Value::callee).filter(|c| is_candidate.contains(c)).collect()
        };
        let mut calls: IndexMap<Value, Vec<Value>> = candidates.iter().map(|f| (*f, callees(f))).collect();
        for planned in two.iter().filter(|f| checks::recurses_at_most_once(f.function, &f.cfg, &f.cfg.graph, f.program.dag())) {
            calls.entry(planned.function).or_default().retain(|c| *c != planned.function);
        }
        let functions_without_check = checks::functions_without_check(&candidates, &calls);
        let counted: IndexMap<Value, Value> =
            two.iter().map(|f| (f.function, declare_counted_version(context.module, f.function))).collect();
        let left_to_callers = counted.iter().map(|(f, c)| (*f, *c)).filter(|(f, _)| functions_without_check.contains(f)).collect();
        SampleTier { context, switch, counted, left_to_callers, sites, iterations }
    }

    /// Creates the instrumented version of a function, with its probes.
    ///
    /// # Errors
    /// Fails with a reason if control cannot change versions with these probes.
    pub fn insert(&self, planned: &mut PlannedFunction, first_counter: u64) -> Result<(), String> {
        self.run_passes(planned);
        match self.counted.get(&planned.function) {
            Some(&counted) => self.build_counted_version(planned, counted, first_counter),
            None => DoubledFunction::insert(self, planned, first_counter)?,
        }
        Ok(())
    }

    /// Runs the passes. Only counts before tail calls are moved to earlier edges, because control might change versions between an early
    /// count and the end of the path. Loops without a check may be counted by trip count.
    fn run_passes(&self, planned: &mut PlannedFunction) {
        let PlannedFunction { cfg, program, frequencies, .. } = planned;
        let mut blocks = crate::places::block_properties(cfg);
        let sites = &self.sites[&planned.function];
        blocks.changes_version = sites.every_iteration.iter().copied().chain(sites.unrolled.iter().map(|l| l.back)).collect();
        program_passes::run_passes(
            program,
            frequencies,
            &blocks,
            PassChoices { trip_counts: self.iterations, ..PassChoices::COUNTING_AT_PATH_ENDS },
        );
    }

    /// Returns the functions that contain the code of a function after it was instrumented.
    pub fn parts(&self, function: Value) -> Vec<Value> {
        [Some(function), self.counted.get(&function).copied()].into_iter().flatten().collect()
    }

    fn build_counted_version(&self, planned: &PlannedFunction, counted: Value, first_counter: u64) {
        let mut known = self.left_to_callers.clone();
        known.extend(planned.function.parameters().into_iter().zip(counted.parameters()));
        let blocks: Vec<Block> = planned.function.blocks().collect();
        let copies = CopyMapping::new(self.context.module, &blocks, counted, &known, CopiedLinePolicy::Drop);
        let cfg = cfg_of_copies(&planned.cfg, &copies);
        // If the function leaves the check to its callers, they have made sure that the thread has counters.
        let is_left = self.left_to_callers.contains_key(&planned.function);
        let base = entry::emit_thread_counters(self.context, counted, None, !is_left);
        let counters = CounterAccess::private_to_thread(base, first_counter);
        probes::insert_function_probes(self.context, counted, &cfg, &planned.program, counters);
        if !is_left {
            self.insert_check_at_entry(planned.function, counted);
        }
    }

    /// Inserts a check at a function's entry, which tail-calls the counted version if the switch is on. As a tail call, it does not enlarge
    /// the stack frame of the checking code.
    fn insert_check_at_entry(&self, function: Value, counted: Value) {
        let (module, location) = (self.context.module, crate::debug::location_without_line(self.context.module, function));
        let (entry, old) = entry::insert_entry_block(module, function);
        let instead = Block::append(module, function);
        let builder = Builder::at_end(module, instead, location);
        let parameters = function.parameters();
        let call = builder.call(counted, &parameters);
        call.set_call_convention(function.convention());
        for index in 0..=parameters.len() as u32 {
            function.attributes_at(index).into_iter().for_each(|attribute| call.add_call_attribute_at(index, attribute));
        }
        call.set_tail_call_kind(LLVMTailCallKind::LLVMTailCallKindMustTail);
        builder.return_result_of(call);
        self.insert_check(entry, instead, old, location);
    }

    /// Ends a block with a branch to `on` if the switch is on, else to `off`.
    fn insert_check(&self, block: Block, on: Block, off: Block, location: Option<DebugLocation>) {
        let module = self.context.module;
        let builder = Builder::at_end(module, block, location);
        let value = builder.load(module.i8(), self.switch);
        // The load is volatile, because the recorder changes the switch from another process.
        value.set_volatile();
        let zero = module.i8().unsigned(0);
        let is_on = builder.compare(LLVMIntPredicate::LLVMIntNE, value, zero);
        weights::mark_branch_unlikely(module, builder.branch(is_on, on, off));
    }
}

impl PlannedFunction {
    fn choose_check_sites(&self, rare: &IndexSet<Value>) -> CheckSites {
        let of = if self.function.name() == "main" {
            CallFrequency::Once
        } else if rare.contains(&self.function) {
            CallFrequency::Rare
        } else {
            CallFrequency::Unknown
        };
        checks::choose_check_sites(&self.cfg, &self.cfg.graph, self.program.dag(), &self.frequencies, of, self.jumps_by_address())
    }

    fn jumps_by_address(&self) -> bool {
        self.function.blocks().any(|b| b.terminator().is(LLVMOpcode::LLVMIndirectBr))
    }

    /// Returns the functions that this one calls directly. The flag tells whether the call is in a loop.
    fn calls(&self) -> Vec<(Value, bool)> {
        let repeated = checks::nodes_in_loops(&self.cfg, &self.cfg.graph, self.program.dag());
        let of_node = |n: Node| {
            let calls =
                self.cfg.block(n).into_iter().flat_map(|b| b.instructions().filter(|i| i.is_call()).map(Value::callee).collect::<Vec<_>>());
            let repeated = repeated.contains(&n);
            calls.map(move |callee| (callee, repeated))
        };
        self.cfg.graph.nodes().flat_map(of_node).collect()
    }
}

/// Returns the functions that are rarely called, as far as the unit shows: `main`, and those that are only called by such functions,
/// outside loops. Any other function may be called millions of times.
fn find_rarely_called(functions: &[PlannedFunction]) -> IndexSet<Value> {
    let calls: IndexMap<Value, Vec<(Value, bool)>> = functions.iter().map(|f| (f.function, f.calls())).collect();
    let mut callers: IndexMap<Value, Vec<(Value, bool)>> = IndexMap::new();
    for (caller, callees) in &calls {
        callees.iter().for_each(|(callee, repeated)| callers.entry(*callee).or_default().push((*caller, *repeated)));
    }
    let mut rare: IndexSet<Value> = functions.iter().map(|f| f.function).filter(|f| f.name() == "main").collect();
    let mut work: Vec<Value> = rare.iter().copied().collect();
    while let Some(function) = work.pop() {
        for (callee, _) in calls.get(&function).into_iter().flatten() {
            let is_seldom = callers[callee].iter().all(|(caller, repeated)| rare.contains(caller) && !repeated);
            if is_seldom && rare.insert(*callee) {
                work.push(*callee);
            }
        }
    }
    rare
}

fn declare_counted_version(module: Module, function: Value) -> Value {
    let kind = function.value_type();
    let counted = declare_with_attributes_of(module, function, &format!("{}.counted", function.name()), kind);
    counted.add_attribute(module.context(), "cold");
    counted.join_comdat_of(function);
    counted
}
