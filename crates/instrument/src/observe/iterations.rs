//! Counts each path together with the preceding ones of the same call, which are paths over loop iterations ([`crate::iterations`]).

use super::{Observer, plan_function};
use crate::describe::FunctionCfg;
use crate::error::InstrumentError;
use crate::iterations::IterationPlan;
use crate::llvm::Value;
use crate::path_end::PathEndAction;
use crate::probes;
use crate::unit::{Unit, verify_plan};
use trodden_unit::iterations::NO_COUNTED_ITERATION_PATHS;
use trodden_unit::{IterationFunction, NameVersion, Skipped, Storage, graph_hash};

pub struct IterationCounts;

impl Observer for IterationCounts {
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        let is_counted = unit.options.iterations.as_ref().is_none_or(|set| set.has_function(&unit.map.source, &function.name()));
        (!is_counted).then_some(NO_COUNTED_ITERATION_PATHS)
    }

    fn measured_edge_counts<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        find_iteration_function(unit, name, cfg).map(|known| known.edges.as_slice())
    }

    fn observe_function(&mut self, unit: &mut Unit, function: Value) -> Result<(), InstrumentError> {
        let mut planned = plan_function(unit, self, function)?;
        let name = function.name();
        let Some(known) = find_iteration_function(unit, &name, &planned.cfg).cloned() else {
            return record_skipped_function(unit, name, OTHER_SHAPE_REASON);
        };
        let iterations = unit.options.iterations.as_ref().map_or(0, |set| set.iterations());
        let Some(numbered) = known.numbered_paths() else { return record_skipped_function(unit, name, OTHER_SHAPE_REASON) };
        let found = IterationPlan::new(&mut planned, numbered, (&known, iterations, unit.options.plan.chords), unit.map.counters);
        let plan = match found {
            Ok(plan) => plan,
            Err(why) => return record_skipped_function(unit, name, &why.to_string()),
        };
        verify_plan(&planned)?;
        let location = crate::debug::location_without_line(unit.module, function);
        let base = unit.emit_thread_counters(&planned, location);
        let code = plan.declare_iteration_code(unit.module, function, location);
        probes::insert_function_probes(
            unit.context,
            function,
            &planned.cfg,
            &planned.program,
            unit.counters(base, PathEndAction::Iterations(code)),
        );
        unit.protect_instrumented_code(&[function]);
        unit.add_function_with_storage(planned, Storage::Iterations(plan.words));
        Ok(())
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}

/// Why a function whose code has changed since the paths were chosen is not counted.
const OTHER_SHAPE_REASON: &str = "its shape differs from that of the function with this name in the set of paths over iterations. Record \
    the run that the set is from again, with the current program";

/// Records in the map that a function is not counted.
fn record_skipped_function(unit: &mut Unit, name: String, reason: &str) -> Result<(), InstrumentError> {
    unit.map.skipped.push(Skipped { name, reason: reason.to_owned() });
    Ok(())
}

/// Returns the paths across loop iterations that a function must count; `None` if there are none, or if they were determined for a
/// different version of the function.
fn find_iteration_function<'u>(unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u IterationFunction> {
    let version = NameVersion { shape: graph_hash(&cfg.blocks, &cfg.graph), code: cfg.code };
    let known = unit.options.iterations.as_ref()?.find_function_with_same_shape(&unit.map.source, name, version);
    known.filter(|known| known.edges.len() == cfg.graph.edge_count())
}
