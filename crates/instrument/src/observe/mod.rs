//! What each kind of observation does to the code of a unit: one module for each, under the name that it has in [`trodden_unit::observe`].
//!
//! An [`Observer`] says which functions are observed, by which paths they are planned, which passes their programs admit, and what is done
//! at a function's entry and where its paths end ([`PathEnd`]). What a method does by default is right for counts of all paths. A new kind
//! is a module, and a line of [`begin`].

pub mod addresses;
pub mod bursts;
pub mod coverage;
pub mod edge_profile;
pub mod every_path;
pub mod interesting;
pub mod part;
pub mod segments;
pub mod sleds;
pub mod stream;
pub mod sums;
pub mod unknown;
pub mod watched;

use crate::describe::FunctionCfg;
use crate::error::Error;
use crate::llvm::{Block, Module, Value};
use crate::module_context::ModuleContext;
use crate::options::PluginOptions;
use crate::path_end::PathEnd;
use crate::places;
use crate::probes;
use crate::sample::PlannedFunction;
use crate::shape::prepare;
use crate::unit::{Unit, choose, graph_of, verify_plan};
use llvm_sys::prelude::LLVMMetadataRef;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::Choices;
use trodden_flow::{Graph, Plan, ProbeProgram};
use trodden_unit::{BlockKind, EdgeProfile, Observation, Skipped};

/// Begins the observation of a unit: declares what its code refers to.
///
/// # Errors
/// LLVM's counters, of which an edge profile or coverage is made, are not as they should be.
pub fn begin(module: Module, context: ModuleContext, options: &PluginOptions, next: &mut u64) -> Result<Box<dyn Observer>, Error> {
    let observation = options.experiment.observation();
    if !matches!(observation, Observation::EdgeProfileCounts(_) | Observation::CoverageCounts(_)) {
        edge_profile::discard(module, context.counters)?;
    }
    Ok(match observation {
        Observation::EveryPath(_) => Box::new(every_path::EveryPath),
        Observation::InterestingPaths(_) => Box::new(interesting::InterestingPaths),
        Observation::EventSums(sums) => Box::new(sums::EventSums::begin(module, sums)),
        Observation::EdgeProfileCounts(_) => Box::new(edge_profile::EdgeProfileCounts::begin(module, context, options, next)?),
        Observation::CoverageCounts(_) => Box::new(coverage::CoverageCounts::begin(module, context, options, next)?),
        Observation::PathStream(_) => Box::new(stream::PathStream::begin(module, options)),
        Observation::BlockAddresses(_) => Box::new(addresses::BlockAddresses::default()),
        // Such a unit has no probes: see [`sleds`].
        Observation::TraceSleds(_) => Box::new(every_path::EveryPath),
        Observation::CountsInBursts(_) => Box::new(bursts::CountsInBursts),
        Observation::SegmentCounts(_) => Box::new(segments::SegmentCounts::default()),
        Observation::UnknownPaths(_) => Box::new(unknown::UnknownPaths::begin(module)),
        Observation::WatchedPaths(_) => Box::new(watched::begin(module)),
        Observation::CopyPart(part) => part::begin(module, part),
    })
}

/// What a kind of observation does to a unit's code.
pub trait Observer {
    /// Why a function is not observed although its graph can be described.
    fn reason_to_skip(&self, _unit: &Unit, _function: Value) -> Option<&'static str> {
        None
    }

    /// Makes the code that observes all these functions.
    ///
    /// # Errors
    /// A plan or a map that was given is of other code, or there are too many events.
    fn observe_all(&mut self, unit: &mut Unit, functions: &[Value], _machine: LLVMTargetMachineRef) -> Result<(), Error> {
        functions.iter().try_for_each(|function| self.observe(unit, *function))
    }

    /// The same, of one function.
    ///
    /// # Errors
    /// As of [`Observer::observe_all`].
    fn observe(&mut self, unit: &mut Unit, function: Value) -> Result<(), Error> {
        let mut planned = plan_function(unit, self.as_dyn(), function)?;
        self.insert(unit, &mut planned);
        unit.finish_code(&[function]);
        unit.enter(planned);
        Ok(())
    }

    /// A function is about to be described: its blocks are as the compiler made them.
    fn before_description(&mut self, _unit: &Unit, _function: Value) {}

    /// Whether a thread may come to a function without having acquired a region.
    fn may_be_first(&self, unit: &Unit, function: Value) -> bool {
        unit.may_be_first(function)
    }

    /// A function, the next one of the map, is described.
    fn described(&mut self, _unit: &mut Unit, _function: Value, _cfg: &FunctionCfg) {}

    /// How often each edge of a function was executed, if what was given with the kind says it.
    fn measured_edges<'u>(&self, _unit: &'u Unit, _name: &str, _cfg: &FunctionCfg) -> Option<&'u [u64]> {
        None
    }

    /// The plan of a function's paths.
    ///
    /// # Errors
    /// What was given with the kind is of another function.
    fn plan(&self, unit: &Unit, _name: &str, cfg: &FunctionCfg, graph: &Graph, frequencies: &Frequencies) -> Result<Plan, Error> {
        Ok(unit.plan_of_all(cfg, graph, frequencies))
    }

    /// Plans again where the paths that were given with the kind decide.
    ///
    /// # Errors
    /// They are of another function, or their numbers are wrong.
    fn plan_again(
        &mut self,
        _unit: &mut Unit,
        planned: PlannedFunction,
        _prepared: &[(Block, BlockKind)],
    ) -> Result<PlannedFunction, Error> {
        Ok(planned)
    }

    /// The passes that a function's program admits, of those that were chosen.
    fn passes(&self, unit: &Unit, planned: &PlannedFunction) -> Choices {
        unit.passes(planned)
    }

    /// Rewrites a program after the passes.
    fn rewrite(&self, _program: &mut ProbeProgram, _cfg: &FunctionCfg) {}

    /// Makes the code at a function's entry. Gives the address behind which it counts, and what is done where its paths end.
    fn enter<'p>(&self, unit: &Unit, planned: &'p PlannedFunction, location: Option<LLVMMetadataRef>) -> (Value, PathEnd<'p>) {
        (unit.counters_of_thread(planned, location), unit.in_array_or_table(planned))
    }

    /// A function has its probes.
    fn inserted(&mut self, _planned: &PlannedFunction, _base: Value, _at_end: PathEnd, _location: Option<LLVMMetadataRef>) {}

    /// Makes the code that observes a function's paths.
    fn insert(&mut self, unit: &Unit, planned: &mut PlannedFunction) {
        insert_probes(self.as_dyn(), unit, planned);
    }

    /// All code is there: defines what it refers to.
    fn define(&self, _unit: &Unit) {}

    /// Takes declarations out again that no function came to need.
    fn forget_unused(&self, _unit: &Unit) {}

    /// What turns the unit's paths into LLVM's edge profile, if it was built to be optimised by that.
    fn edge_profile(&mut self) -> Option<EdgeProfile> {
        None
    }

    /// This one, for functions that take any.
    fn as_dyn(&mut self) -> &mut dyn Observer;
}

/// Runs the passes on a function's program, and inserts what it says.
fn insert_probes(observer: &mut dyn Observer, unit: &Unit, planned: &mut PlannedFunction) {
    let passes = observer.passes(unit, planned);
    let PlannedFunction { function, cfg, graph, program, frequencies, .. } = &mut *planned;
    let function = *function;
    probes::run_passes(program, frequencies, &places::block_properties(cfg, graph), passes);
    observer.rewrite(program, cfg);
    let location = crate::debug::no_line(unit.module, function);
    let (base, at_end) = observer.enter(unit, planned, location);
    probes::insert(unit.context, function, &planned.cfg, &planned.program, unit.counters(base, at_end));
    observer.inserted(planned, base, at_end, location);
}

/// Describes a function and plans its probes.
///
/// # Errors
/// As of [`Observer::observe_all`].
pub fn plan_function(unit: &mut Unit, observer: &mut dyn Observer, function: Value) -> Result<PlannedFunction, Error> {
    if unit.map.producer.is_empty() {
        unit.map.producer = unit.positions.producer(function).unwrap_or_default();
    }
    let position = unit.positions.of_function(function);
    // Before the function's blocks change: whether its callers have all acquired regions.
    let open = observer.may_be_first(unit, function);
    observer.before_description(unit, function);
    let prepared = prepare(unit.module, function);
    let cfg = FunctionCfg::new(function, &prepared, &unit.no_return, &mut unit.positions);
    observer.described(unit, function, &cfg);
    let graph = graph_of(function, &cfg)?;
    let name = function.name();
    let (frequencies, measured) = unit.frequencies(&name, &cfg, &graph, observer.measured_edges(unit, &name, &cfg));
    let plan = observer.plan(unit, &name, &cfg, &graph, &frequencies)?;
    let planned = PlannedFunction {
        program: ProbeProgram::from_plan(&graph, &plan),
        function,
        position,
        cfg,
        graph,
        frequencies,
        measured,
        open,
        counted: None,
    };
    let planned = observer.plan_again(unit, planned, &prepared)?;
    verify_plan(&planned)?;
    Ok(planned)
}

/// The functions to observe, and those that are not, with the reasons.
pub fn choose_functions(unit: &mut Unit, observer: &dyn Observer) -> (Vec<Value>, Vec<Skipped>) {
    let (described, mut skipped) = choose(unit.module);
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
