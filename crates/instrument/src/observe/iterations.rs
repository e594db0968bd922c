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

    fn measured_edges<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        iterations_of(unit, name, cfg).map(|known| known.edges.as_slice())
    }

    fn observe(&mut self, unit: &mut Unit, function: Value) -> Result<(), InstrumentError> {
        let mut planned = plan_function(unit, self, function)?;
        let name = function.name();
        let Some(known) = iterations_of(unit, &name, &planned.cfg).cloned() else {
            return skip(unit, name, OTHER_SHAPE);
        };
        let iterations = unit.options.iterations.as_ref().map_or(0, |set| set.iterations());
        let Some(numbered) = known.numbered_paths() else { return skip(unit, name, OTHER_SHAPE) };
        let found = IterationPlan::new(&mut planned, numbered, (&known, iterations, unit.options.plan.chords), unit.map.counters);
        let plan = match found {
            Ok(plan) => plan,
            Err(why) => return skip(unit, name, &why.to_string()),
        };
        verify_plan(&planned)?;
        let location = crate::debug::location_without_line(unit.module, function);
        let base = unit.emit_thread_counters(&planned, location);
        let code = plan.begin(unit.module, function, location);
        probes::insert(unit.context, function, &planned.cfg, &planned.program, unit.counters(base, PathEndAction::Iterations(code)));
        unit.finish_code(&[function]);
        unit.add_function_with_storage(planned, Storage::Iterations(plan.words));
        Ok(())
    }

    fn as_dyn(&mut self) -> &mut dyn Observer {
        self
    }
}

/// Why a function whose code has changed since the paths were chosen is not counted.
const OTHER_SHAPE: &str = "its shape differs from that of the function with this name in the set of paths over iterations. Record the run \
    that the set is from again, with the current program";

/// Records in the map that a function is not counted.
fn skip(unit: &mut Unit, name: String, reason: &str) -> Result<(), InstrumentError> {
    unit.map.skipped.push(Skipped { name, reason: reason.to_owned() });
    Ok(())
}

/// Returns the paths across loop iterations that a function must count; `None` if there are none, or if they were determined for a
/// different version of the function.
fn iterations_of<'u>(unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u IterationFunction> {
    let version = NameVersion { shape: graph_hash(&cfg.blocks, &cfg.graph), code: cfg.code };
    let known = unit.options.iterations.as_ref()?.find_same_shape(&unit.map.source, name, version);
    known.filter(|known| known.edges.len() == cfg.graph.edge_count())
}
