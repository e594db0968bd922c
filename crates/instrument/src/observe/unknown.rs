//! Counts unknown paths: all paths except those known from earlier runs. The runtime counts a path's first execution ([`crate::residual`]
//! generates the code).

use super::Observer;
use crate::describe::FunctionCfg;
use crate::emit;
use crate::error::InstrumentError;
use crate::interesting::{InterestingRequest, plan_unknown_paths};
use crate::llvm::{Block, Module, Value};
use crate::planned_function::PlannedFunction;
use crate::residual;
use crate::unit::Unit;
use crate::versions;
use trodden_flow::program::{EarlyCounting, PassChoices};
use trodden_flow::residual::ResidualInput;
use trodden_flow::{EdgeSet, Plan, ProbeProgram, ResidualPlan};
use trodden_selective::plan::{InterestingInput, InterestingPlanError};
use trodden_unit::{BlockKind, KnownFunction, NameVersion, Observation, Skipped, graph_hash};
use trodden_wire::UNTESTED_SYMBOL;

pub struct UnknownPaths {
    /// The runtime function that counts a path's first execution.
    count: Value,
    /// True if the function being planned may be split into several versions of its code.
    versions: bool,
    /// Maps the passes that the user requested to those that apply.
    passes: fn(PassChoices) -> PassChoices,
    /// Returns a further reason to skip a function.
    skip: fn(&Unit, Value) -> Option<&'static str>,
}

impl UnknownPaths {
    /// Creates the observer. Counting an unknown path takes an additional comparison, so loop iterations are first accumulated in
    /// registers.
    pub fn with_accumulated_iterations(module: Module) -> UnknownPaths {
        UnknownPaths::new(module, PassChoices::accumulating_in_registers, |_, _| None)
    }

    /// Creates the observer for another kind of observation that counts in the same way but differs in passes or in the functions it skips.
    pub fn new(module: Module, passes: fn(PassChoices) -> PassChoices, skip: fn(&Unit, Value) -> Option<&'static str>) -> UnknownPaths {
        UnknownPaths { count: emit::declare_count_function(module), versions: false, passes, skip }
    }
}

impl Observer for UnknownPaths {
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        // If the callback were counted, its own untested paths would be reported to it.
        let is_callback = function.name() == UNTESTED_SYMBOL;
        (self.skip)(unit, function).or(is_callback.then_some("it is the callback for untested paths"))
    }

    fn before_function_description(&mut self, _: &Unit, function: Value) {
        self.versions = versions::reason_not_to_double(function).is_none();
    }

    /// Functions do not make sure at their entry that the thread has a region (its own counters).
    fn may_lack_region(&self, _: &Unit, _: Value) -> bool {
        true
    }

    fn measured_edge_counts<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        find_known_paths(unit, name, cfg).map(|known| known.edges.as_slice())
    }

    fn replan_function(
        &mut self,
        unit: &mut Unit,
        mut planned: PlannedFunction,
        _: &[(Block, BlockKind)],
    ) -> Result<PlannedFunction, InstrumentError> {
        let name = planned.function.name();
        if let Some(known) = find_known_paths(unit, &name, &planned.cfg).cloned() {
            let numbered = program_recognising_by_number(unit, &planned, &known)?;
            let region = || program_recognising_by_code_version(unit, &planned, &known, self.versions);
            planned.program = numbered.or_else(region).ok_or(InstrumentError::KnownPathsMismatch(name))?;
        }
        Ok(planned)
    }

    fn choose_passes(&self, unit: &Unit, planned: &PlannedFunction) -> PassChoices {
        let chosen = (self.passes)(unit.options.choices);
        match (planned.program.known(), planned.program.places()) {
            // The function has no known paths, so all its paths are counted.
            (None, _) => chosen,
            // The versions of the code in which paths are counted do so as usual, but only at path ends, since unknown paths are rare.
            (Some(_), Some(_)) => PassChoices { early: EarlyCounting::IfNecessary, ..chosen },
            // Every path is looked up at its end.
            (Some(_), None) => PassChoices::COUNTING_AT_PATH_ENDS,
        }
    }

    fn insert(&mut self, unit: &Unit, planned: &mut PlannedFunction) {
        let passes = self.choose_passes(unit, planned);
        residual::insert_residual_code(unit.context, self.count, planned, unit.map.counters, passes);
    }

    fn define_referenced_symbols(&self, unit: &Unit) {
        emit::define_direct_bias(unit.module);
    }

    fn remove_unused_declarations(&self, _: &Unit) {
        emit::remove_unused_declarations(&[self.count]);
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}

/// Returns the known paths of a function; `None` if there are none, or if they belong to a different version of it.
fn find_known_paths<'u>(unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u KnownFunction> {
    let known = unit.options.known.as_ref()?;
    let version = NameVersion { shape: graph_hash(&cfg.blocks, &cfg.graph), code: cfg.code };
    known.get(&unit.map.source, name, version).filter(|k| k.edges.len() == cfg.graph.edge_count())
}

/// Returns a probe program that recognises known paths by their numbers; `None` if that is not requested or not possible. If the numbers do
/// not fit, the map records that known paths are recognised by the version of the code instead.
fn program_recognising_by_number(
    unit: &mut Unit,
    planned: &PlannedFunction,
    known: &KnownFunction,
) -> Result<Option<ProbeProgram>, InstrumentError> {
    let requested = match unit.options.experiment.observation() {
        Observation::UnknownPaths(paths) => paths.recognition.numbering(),
        _ => None,
    };
    let Some(scheme) = requested.filter(|_| !known.known.is_empty()) else { return Ok(None) };
    let name = planned.function.name();
    let numbered = Plan::cut_and_number_if_same_count(&planned.cfg.graph, &known.cuts, unit.options.plan.entries, known.paths);
    let (dag, numbering) = numbered.ok_or_else(|| InstrumentError::KnownPathsMismatch(name.clone()))?;
    let (ids, none): (Vec<u64>, _) = (known.known.iter().map(|(id, _)| *id).collect(), EdgeSet::empty(planned.cfg.graph.edge_count()));
    let request = InterestingRequest {
        graph: &planned.cfg.graph,
        frequencies: &planned.frequencies,
        input: InterestingInput { scheme, ids: &ids, marks_call: &none },
        options: &unit.options.plan,
        time_limit_s: 0,
    };
    match plan_unknown_paths(&request, dag, numbering) {
        Ok(program) => Ok(Some(program)),
        Err(InterestingPlanError::Wrong(what)) => Err(InstrumentError::InvalidNumbering { function: name, what }),
        Err(why) => {
            let reason = format!("its tested paths are recognised by code region instead of by number: {why}");
            unit.map.fully_counted.push(Skipped { name, reason });
            Ok(None)
        }
    }
}

/// Returns a probe program that counts the unknown paths, numbered as in the run that found the known ones. With `versions`, the code has
/// several versions; otherwise each path is looked up. `None` if the known paths belong to a different graph.
fn program_recognising_by_code_version(
    unit: &Unit,
    planned: &PlannedFunction,
    known: &KnownFunction,
    versions: bool,
) -> Option<ProbeProgram> {
    let (graph, frequencies) = (&planned.cfg.graph, &planned.frequencies);
    let (dag, numbering) = Plan::cut_and_number_if_same_count(graph, &known.cuts, unit.options.plan.entries, known.paths)?;
    let excluded = planned.cfg.edges_from_calls_to_exit();
    let (paths, single) = (&known.known, &residual::dispatch_blocks(&planned.cfg));
    let residual = ResidualPlan::new(&dag, &numbering, ResidualInput { paths, uncopied: single, marks_call: &excluded });
    let probes = residual.probes(&dag, &numbering, graph, frequencies);
    let plan = Plan { dag, numbering, probes, partial: None, part: None };
    Some(if versions { residual.program_with_versions(graph, &plan) } else { residual.program_with_lookups(graph, &plan) })
}
