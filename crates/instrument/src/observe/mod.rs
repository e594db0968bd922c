//! Kinds of observation, that is, of what is counted or recorded: one module per kind, with the same name as in [`trodden_unit::observe`].
//!
//! An [`Observer`] decides which functions are observed, how their paths are planned, which passes apply, and what happens at a function's
//! entry and at path ends ([`PathEndAction`]). The default methods count all paths. To add a kind, add a module and a line in
//! [`create_observer`].

pub mod addresses;
pub mod bursts;
pub mod coverage;
pub mod edge_profile;
pub mod every_path;
pub mod interesting;
pub mod iterations;
pub mod part;
pub mod segments;
pub mod sleds;
pub mod stream;
pub mod sums;
pub mod unknown;
pub mod watched;

use crate::describe::FunctionCfg;
use crate::error::InstrumentError;
use crate::llvm::{Block, DebugLocation, Module, TargetMachine, Value};
use crate::module_context::ModuleContext;
use crate::options::PluginOptions;
use crate::path_end::PathEndAction;
use crate::places;
use crate::planned_function::PlannedFunction;
use crate::probes;
use crate::program_passes;
use crate::shape::prepare_function_blocks;
use crate::unit::{Unit, choose_instrumentable, verify_plan};
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::PassChoices;
use trodden_flow::{Plan, ProbeProgram};
use trodden_unit::{BlockKind, EdgeProfile, Observation, Skipped};

/// Creates the observer that the experiment requires, and declares the symbols to which its inserted code refers.
///
/// # Errors
/// Fails if the module's LLVM counters are not of the kind that the experiment needs, or cannot be removed.
pub fn create_observer(
    module: Module,
    context: ModuleContext,
    options: &PluginOptions,
    next: &mut u64,
) -> Result<Box<dyn Observer>, InstrumentError> {
    let observation = options.experiment.observation();
    if !matches!(observation, Observation::EdgeProfileCounts(_) | Observation::CoverageCounts(_)) {
        edge_profile::discard_llvm_counters(module, context.counters)?;
    }
    Ok(match observation {
        Observation::EveryPath(_) => Box::new(every_path::EveryPath),
        Observation::InterestingPaths(_) => Box::new(interesting::InterestingPaths),
        Observation::EventSums(sums) => Box::new(sums::EventSums::new(module, sums)),
        Observation::EdgeProfileCounts(_) => {
            Box::new(edge_profile::EdgeProfileCounts::extract_from_module(module, context, options, next)?)
        }
        Observation::CoverageCounts(_) => Box::new(coverage::CoverageCounts::extract_from_module(module, context, options, next)?),
        Observation::PathStream(_) => Box::new(stream::PathStream::new(module, options)),
        Observation::BlockAddresses(_) => Box::new(addresses::BlockAddresses::default()),
        // Never used: such a unit gets sleds instead of probes ([`sleds`]).
        Observation::TraceSleds(_) => Box::new(every_path::EveryPath),
        Observation::CountsInBursts(_) => Box::new(bursts::CountsInBursts),
        Observation::SegmentCounts(_) => Box::new(segments::SegmentCounts::default()),
        Observation::IterationCounts(_) => Box::new(iterations::IterationCounts),
        Observation::UnknownPaths(_) => Box::new(unknown::UnknownPaths::with_accumulated_iterations(module)),
        Observation::WatchedPaths(_) => Box::new(watched::create_watched_paths_observer(module)),
        Observation::CopyPart(part) => part::create_part_observer(module, part),
    })
}

/// The changes that a kind of observation makes to a unit's code.
pub trait Observer {
    /// Returns the reason for not observing a function; `None` if it is to be observed.
    fn reason_to_skip(&self, _unit: &Unit, _function: Value) -> Option<&'static str> {
        None
    }

    /// Instruments the given functions.
    ///
    /// # Errors
    /// Fails if the experiment's input belongs to different code, or if a function has too many events.
    fn observe_functions(&mut self, unit: &mut Unit, functions: &[Value], _machine: TargetMachine) -> Result<(), InstrumentError> {
        functions.iter().try_for_each(|function| self.observe_function(unit, *function))
    }

    fn observe_function(&mut self, unit: &mut Unit, function: Value) -> Result<(), InstrumentError> {
        let mut planned = plan_function(unit, self.as_dyn_observer(), function)?;
        self.insert(unit, &mut planned);
        unit.protect_instrumented_code(&[function]);
        unit.add_function(planned);
        Ok(())
    }

    /// Called before a function is described, which splits blocks.
    fn before_function_description(&mut self, _unit: &Unit, _function: Value) {}

    /// Returns true if a thread may enter a function without having acquired a region.
    fn may_lack_region(&self, unit: &Unit, function: Value) -> bool {
        unit.may_lack_region(function)
    }

    /// Called after a function was described. Its number in the map will be the current number of functions there.
    fn after_function_description(&mut self, _unit: &mut Unit, _function: Value, _cfg: &FunctionCfg) {}

    /// Returns how often each edge of a function was executed in an earlier run, if the experiment's input says so.
    fn measured_edge_counts<'u>(&self, _unit: &'u Unit, _name: &str, _cfg: &FunctionCfg) -> Option<&'u [u64]> {
        None
    }

    /// Plans how a function's paths are numbered and counted.
    ///
    /// # Errors
    /// Fails if the experiment's input belongs to a different function.
    fn plan(&self, unit: &Unit, _name: &str, cfg: &FunctionCfg, frequencies: &Frequencies) -> Result<Plan, InstrumentError> {
        Ok(unit.plan_all_paths(cfg, frequencies))
    }

    /// Replaces a function's plan, for kinds of observation whose input determines which paths are counted.
    ///
    /// # Errors
    /// Fails if the experiment's input belongs to a different function, or if its numbering is wrong.
    fn replan_function(
        &mut self,
        _unit: &mut Unit,
        planned: PlannedFunction,
        _prepared: &[(Block, BlockKind)],
    ) -> Result<PlannedFunction, InstrumentError> {
        Ok(planned)
    }

    fn choose_passes(&self, unit: &Unit, planned: &PlannedFunction) -> PassChoices {
        unit.choose_passes(planned)
    }

    fn rewrite_program(&self, _program: &mut ProbeProgram, _cfg: &FunctionCfg) {}

    /// Emits the code at a function's entry. Returns the address to which the unit's counter indices are relative, and the action at the
    /// end of the function's paths.
    fn emit_function_entry<'p>(
        &self,
        unit: &Unit,
        planned: &'p PlannedFunction,
        location: Option<DebugLocation>,
    ) -> (Value, PathEndAction<'p>) {
        (unit.emit_thread_counters(planned, location), unit.counting_in_array_or_table(planned))
    }

    /// Called after a function's probes have been inserted.
    fn after_probe_insertion(
        &mut self,
        _planned: &PlannedFunction,
        _base: Value,
        _at_end: PathEndAction,
        _location: Option<DebugLocation>,
    ) {
    }

    fn insert(&mut self, unit: &Unit, planned: &mut PlannedFunction) {
        insert_probes(self.as_dyn_observer(), unit, planned);
    }

    /// Called after all functions have been instrumented, to define the symbols to which their code refers.
    fn define_referenced_symbols(&self, _unit: &Unit) {}

    fn remove_unused_declarations(&self, _unit: &Unit) {}

    /// Returns the data by which path counts are converted into LLVM's edge profile or coverage; `None` if the unit was not built for that.
    fn edge_profile(&mut self) -> Option<EdgeProfile> {
        None
    }

    /// Returns `self` as a trait object, which default methods cannot do themselves.
    fn as_dyn_observer(&mut self) -> &mut dyn Observer;
}

/// Runs the passes on a function's probe program, and inserts the probes into its code.
fn insert_probes(observer: &mut dyn Observer, unit: &Unit, planned: &mut PlannedFunction) {
    let passes = observer.choose_passes(unit, planned);
    let PlannedFunction { function, cfg, program, frequencies, .. } = &mut *planned;
    let function = *function;
    program_passes::run_passes(program, frequencies, &places::block_properties(cfg), passes);
    observer.rewrite_program(program, cfg);
    let location = crate::debug::location_without_line(unit.module, function);
    let (base, at_end) = observer.emit_function_entry(unit, planned, location);
    probes::insert_function_probes(unit.context, function, &planned.cfg, &planned.program, unit.counters(base, at_end));
    observer.after_probe_insertion(planned, base, at_end, location);
}

pub fn plan_function(unit: &mut Unit, observer: &mut dyn Observer, function: Value) -> Result<PlannedFunction, InstrumentError> {
    if unit.map.producer.is_empty() {
        unit.map.producer = unit.positions.compiler_name(function).unwrap_or_default();
    }
    let position = unit.positions.position_of_function(function);
    // Called before the function's blocks change, because it examines the callers.
    let may_lack_region = observer.may_lack_region(unit, function);
    observer.before_function_description(unit, function);
    let prepared = prepare_function_blocks(unit.module, function);
    let cfg = FunctionCfg::new(function, &prepared, &unit.no_return, &mut unit.positions);
    observer.after_function_description(unit, function, &cfg);
    let name = function.name();
    let (frequencies, is_measured) = unit.frequencies(&name, &cfg, observer.measured_edge_counts(unit, &name, &cfg));
    let plan = observer.plan(unit, &name, &cfg, &frequencies)?;
    let planned = PlannedFunction {
        program: ProbeProgram::from_plan(&cfg.graph, &plan),
        function,
        position,
        cfg,
        frequencies,
        is_measured,
        may_lack_region,
        counted: None,
    };
    let planned = observer.replan_function(unit, planned, &prepared)?;
    verify_plan(&planned)?;
    Ok(planned)
}

/// Returns the functions to observe, and the functions that are skipped with the reasons.
pub fn choose_functions(unit: &mut Unit, observer: &dyn Observer) -> (Vec<Value>, Vec<Skipped>) {
    let (described, mut skipped) = choose_instrumentable(unit.module);
    let mut chosen = Vec::new();
    for function in described {
        match observer.reason_to_skip(unit, function) {
            None => chosen.push(function),
            Some(reason) => skipped.push(Skipped { name: function.name(), reason: reason.into() }),
        }
    }
    unit.chosen = chosen.iter().copied().collect();
    (chosen, skipped)
}
