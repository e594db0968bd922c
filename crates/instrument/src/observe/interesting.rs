//! Counts interesting paths, a given subset: each has a counter of its own, and all other paths of a function share one
//! ([`crate::interesting`]).

use super::Observer;
use crate::describe::FunctionCfg;
use crate::error::InstrumentError;
use crate::interesting::{InterestingPathCode, InterestingRequest, plan_interesting_paths, program_for_all_paths};
use crate::llvm::{Block, DebugLocation, Value};
use crate::options::ExperimentScheme;
use crate::path_end::PathEndAction;
use crate::planned_function::PlannedFunction;
use crate::unit::Unit;
use trodden_flow::program::{CounterCells, EarlyCounting, PassChoices};
use trodden_flow::{NumberingScheme, Plan};
use trodden_selective::plan::{InterestingInput, InterestingPlanError};
use trodden_unit::{BlockKind, KnownFunction, NameVersion, Skipped, graph_hash};

/// Why a function without interesting paths is not counted.
const NOT_INTERESTING_REASON: &str = "none of its paths is interesting (--interesting)";

/// Passes for functions with interesting paths. Two passes of `PassChoices` are left out: counting on a loop's exit edge would look up
/// paths that were not taken, and the dominant iteration is recognised by the register, which does not hold a path number here.
const INTERESTING_PATH_PASSES: PassChoices = PassChoices { early: EarlyCounting::IfProfitable, ..PassChoices::COUNTING_AT_PATH_ENDS };

pub struct InterestingPaths;

impl Observer for InterestingPaths {
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        reason_to_skip(unit, function)
    }

    fn measured_edge_counts<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        find_interesting_paths(unit, name, cfg).map(|known| known.edges.as_slice())
    }

    fn replan_function(
        &mut self,
        unit: &mut Unit,
        mut planned: PlannedFunction,
        _: &[(Block, BlockKind)],
    ) -> Result<PlannedFunction, InstrumentError> {
        count_only_interesting_paths(unit, &mut planned)?;
        Ok(planned)
    }

    fn choose_passes(&self, unit: &Unit, planned: &PlannedFunction) -> PassChoices {
        match planned.program.cells() {
            CounterCells::Interesting(_) => unit.options.choices.limited_to(INTERESTING_PATH_PASSES),
            _ => unit.choose_passes(planned),
        }
    }

    fn emit_function_entry<'p>(
        &self,
        unit: &Unit,
        planned: &'p PlannedFunction,
        location: Option<DebugLocation>,
    ) -> (Value, PathEndAction<'p>) {
        let base = unit.emit_thread_counters(planned, location);
        let at_end = match declare_path_code(unit, planned) {
            Some(words) => PathEndAction::Interesting(words, None),
            None => unit.counting_in_array_or_table(planned),
        };
        (base, at_end)
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}

/// Returns the reason for not counting a function; `None` if some of its paths are interesting.
pub fn reason_to_skip(unit: &Unit, function: Value) -> Option<&'static str> {
    let is_named = unit.options.interesting.as_ref().is_none_or(|paths| paths.has_function(&unit.map.source, &function.name()));
    (!is_named).then_some(NOT_INTERESTING_REASON)
}

/// Returns the interesting paths of a function; `None` if there are none, or if they belong to a different version of it.
pub fn find_interesting_paths<'u>(unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u KnownFunction> {
    let known = unit.options.interesting.as_ref()?;
    let version = NameVersion { shape: graph_hash(&cfg.blocks, &cfg.graph), code: cfg.code };
    known.find_function_with_same_shape(&unit.map.source, name, version).filter(|k| k.edges.len() == cfg.graph.edge_count())
}

/// Returns the emitter of counter indices for a function's interesting paths; `None` if the function counts in a different way.
pub fn declare_path_code<'p>(unit: &Unit, planned: &'p PlannedFunction) -> Option<InterestingPathCode<'p>> {
    match planned.program.cells() {
        CounterCells::Interesting(cells) => Some(InterestingPathCode::declare(unit.module, &planned.function.name(), &cells.ending)),
        CounterCells::Paths | CounterCells::Labels { .. } | CounterCells::Preferential(_) => None,
    }
}

/// Replaces a function's probe program with one that counts its interesting paths. If none are known for this version of the function, all
/// its paths are counted, and the map says so.
///
/// # Errors
/// Fails if the paths belong to a different function, or if the verifier rejects their numbering.
pub fn count_only_interesting_paths(unit: &mut Unit, planned: &mut PlannedFunction) -> Result<(), InstrumentError> {
    let name = planned.function.name();
    let Some(known) = find_interesting_paths(unit, &name, &planned.cfg).cloned() else {
        let reason = "its shape differs from that of the function with this name whose paths are interesting".into();
        unit.map.fully_counted.push(Skipped { name, reason });
        return Ok(());
    };
    let ids: Vec<u64> = known.known.iter().map(|(id, _)| *id).collect();
    let entries = unit.options.plan.entries;
    let (dag, numbering) = Plan::cut_and_number_if_same_count(&planned.cfg.graph, &known.cuts, entries, known.paths)
        .ok_or_else(|| InstrumentError::KnownPathsMismatch(name.clone()))?;
    let excluded = planned.cfg.edges_from_calls_to_exit();
    let scheme = match unit.options.experiment.scheme() {
        ExperimentScheme::Interesting(scheme) => Some(scheme),
        _ => None,
    };
    let request = InterestingRequest {
        graph: &planned.cfg.graph,
        frequencies: &planned.frequencies,
        input: InterestingInput { scheme: scheme.unwrap_or(NumberingScheme::BallLarus), ids: &ids, marks_call: &excluded },
        options: &unit.options.plan,
        time_limit_s: unit.options.time_limit_s,
    };
    // With the same cuts, paths keep the numbers by which the user chose them. If there are too many for an array, the original program
    // stays.
    let few = numbering.paths() <= unit.options.plan.max_paths;
    let elsewhere = (!few).then(|| explain_different_cuts(unit, numbering.paths()));
    let in_full = few.then(|| program_for_all_paths(&request, dag.clone(), numbering.clone()));
    let reason = match scheme.map(|_| plan_interesting_paths(&request, dag, numbering)) {
        Some(Ok(program)) => {
            planned.program = program;
            return Ok(());
        }
        Some(Err(InterestingPlanError::Wrong(what))) => return Err(InstrumentError::InvalidNumbering { function: name, what }),
        Some(Err(why)) => Some(why.to_string()),
        None => None,
    };
    let reason = [reason, elsewhere].into_iter().flatten().collect::<Vec<String>>().join("; ");
    if !reason.is_empty() {
        unit.map.fully_counted.push(Skipped { name, reason });
    }
    planned.program = in_full.unwrap_or_else(|| planned.program.clone());
    Ok(())
}

fn explain_different_cuts(unit: &Unit, paths: u64) -> String {
    format!(
        "it has {paths} paths but max-paths is {}, so they are cut into shorter ones, whose numbers differ from those of \
             the interesting paths",
        unit.options.plan.max_paths
    )
}
