//! Counts all paths instead of the counters of source-based coverage, which are removed and later computed from the paths. In addition to
//! the data that an [edge profile](super::edge_profile) needs, the map records the positions of calls, because code after a call that does
//! not return was not executed.

use super::Observer;
use super::edge_profile::extract_llvm_counters;
use crate::describe::FunctionCfg;
use crate::llvm::{DebugLocation, Module, Value};
use crate::module_context::ModuleContext;
use crate::options::PluginOptions;
use crate::path_end::PathEndAction;
use crate::placeholders::{CounterKind, PlaceholderError, Placeholders};
use crate::planned_function::PlannedFunction;
use crate::unit::Unit;
use trodden_unit::EdgeProfile;

pub struct CoverageCounts {
    placeholders: Option<Placeholders>,
}

impl CoverageCounts {
    /// Removes the coverage counters from a module.
    ///
    /// # Errors
    /// Fails if the module has a different kind of LLVM counters, or if its counters cannot be removed.
    pub fn extract_from_module(
        module: Module,
        context: ModuleContext,
        options: &PluginOptions,
        next: &mut u64,
    ) -> Result<CoverageCounts, PlaceholderError> {
        let placeholders = Some(extract_llvm_counters(module, context, options, CounterKind::Coverage, next)?);
        Ok(CoverageCounts { placeholders })
    }
}

impl Observer for CoverageCounts {
    fn before_function_description(&mut self, unit: &Unit, function: Value) {
        self.placeholders.iter_mut().for_each(|p| p.emit_computed_counts(function, unit.context.counters));
    }

    fn after_function_description(&mut self, unit: &mut Unit, function: Value, cfg: &FunctionCfg) {
        let Some(placeholders) = &mut self.placeholders else { return };
        let number = unit.map.functions.len();
        placeholders.record_placeholders(function, cfg, &unit.no_return, number, &mut unit.map.counters);
        placeholders.record_calls(function, cfg, number, &mut unit.positions, &mut unit.map.counters);
    }

    fn after_probe_insertion(&mut self, _: &PlannedFunction, base: Value, _: PathEndAction, _: Option<DebugLocation>) {
        self.placeholders.iter_mut().for_each(|placeholders| placeholders.resolve_counter_base(base));
    }

    fn edge_profile(&mut self) -> Option<EdgeProfile> {
        self.placeholders.take().map(Placeholders::finish_edge_profile)
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}
