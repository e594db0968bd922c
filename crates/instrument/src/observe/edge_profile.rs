//! Counts all paths instead of LLVM's edge counters, which are removed and later computed from the paths. The map records their positions;
//! those that paths do not determine are kept as counters of the unit ([`crate::placeholders`]).

use super::Observer;
use crate::describe::FunctionCfg;
use crate::llvm::{DebugLocation, Module, Value};
use crate::module_context::ModuleContext;
use crate::options::{PluginOptions, ThreadCounters};
use crate::path_end::PathEndAction;
use crate::placeholders::{self, CounterKind, PlaceholderError, Placeholders, RemovalOptions};
use crate::planned_function::PlannedFunction;
use crate::unit::Unit;
use trodden_unit::EdgeProfile;

pub struct EdgeProfileCounts {
    placeholders: Option<Placeholders>,
}

impl EdgeProfileCounts {
    /// Removes the edge counters from a module.
    ///
    /// # Errors
    /// Fails if the module has a different kind of LLVM counters, or if its counters cannot be removed.
    pub fn extract_from_module(
        module: Module,
        context: ModuleContext,
        options: &PluginOptions,
        next: &mut u64,
    ) -> Result<EdgeProfileCounts, PlaceholderError> {
        let placeholders = Some(extract_llvm_counters(module, context, options, CounterKind::Edges, next)?);
        Ok(EdgeProfileCounts { placeholders })
    }
}

pub fn extract_llvm_counters(
    module: Module,
    context: ModuleContext,
    options: &PluginOptions,
    kind: CounterKind,
    next: &mut u64,
) -> Result<Placeholders, PlaceholderError> {
    let options = RemovalOptions { kind, shared: options.experiment.threads() == ThreadCounters::Atomic };
    Placeholders::extract_llvm_counters(module, context.counters, next, options)
}

/// Removes the placeholders of LLVM's counters from stored bitcode, for a build that does not need them.
pub fn discard_llvm_counters(module: Module, counters: Value) -> Result<(), PlaceholderError> {
    if placeholders::has_placeholders(module) {
        Placeholders::extract_llvm_counters(module, counters, &mut 0, RemovalOptions { kind: CounterKind::Discarded, shared: false })?
            .finish_edge_profile();
    }
    Ok(())
}

impl Observer for EdgeProfileCounts {
    fn before_function_description(&mut self, unit: &Unit, function: Value) {
        self.placeholders.iter_mut().for_each(|p| p.emit_computed_counts(function, unit.context.counters));
    }

    fn after_function_description(&mut self, unit: &mut Unit, function: Value, cfg: &FunctionCfg) {
        let Some(placeholders) = &mut self.placeholders else { return };
        placeholders.record_placeholders(function, cfg, &unit.no_return, unit.map.functions.len(), &mut unit.map.counters);
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
