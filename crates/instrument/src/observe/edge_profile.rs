//! Counts of all paths of a unit that LLVM's edge counters were taken out of: where these were is noted, and what no path can say is
//! counted in words of its own ([`crate::placeholders`]).

use super::Observer;
use crate::describe::FunctionCfg;
use crate::llvm::{Module, Value};
use crate::module_context::ModuleContext;
use crate::options::{PluginOptions, Threads};
use crate::path_end::PathEnd;
use crate::placeholders::{self, CounterKind, PlaceholderError, Placeholders, Taking};
use crate::sample::PlannedFunction;
use crate::unit::Unit;
use llvm_sys::prelude::LLVMMetadataRef;
use trodden_unit::EdgeProfile;

/// The observer of paths of which LLVM's edge counters follow.
pub struct EdgeProfileCounts {
    placeholders: Option<Placeholders>,
}

impl EdgeProfileCounts {
    /// Takes the counters out of a module.
    ///
    /// # Errors
    /// There are none, or others.
    pub fn begin(
        module: Module,
        context: ModuleContext,
        options: &PluginOptions,
        next: &mut u64,
    ) -> Result<EdgeProfileCounts, PlaceholderError> {
        let placeholders = Some(take(module, context, options, CounterKind::Edges, next)?);
        Ok(EdgeProfileCounts { placeholders })
    }
}

/// Takes counters of a kind out of a module.
pub fn take(
    module: Module,
    context: ModuleContext,
    options: &PluginOptions,
    kind: CounterKind,
    next: &mut u64,
) -> Result<Placeholders, PlaceholderError> {
    let taking = Taking { kind, shared: options.experiment.threads() == Threads::Atomic };
    Placeholders::take(module, context.counters, next, taking)
}

/// Takes counters out that an earlier variant of the unit had for its placeholders.
pub fn discard(module: Module, counters: Value) -> Result<(), PlaceholderError> {
    if placeholders::has_placeholders(module) {
        Placeholders::take(module, counters, &mut 0, Taking { kind: CounterKind::Discarded, shared: false })?.finish();
    }
    Ok(())
}

impl Observer for EdgeProfileCounts {
    fn before_description(&mut self, unit: &Unit, function: Value) {
        self.placeholders.iter_mut().for_each(|p| p.count_computed(function, unit.context.counters));
    }

    fn described(&mut self, unit: &mut Unit, function: Value, cfg: &FunctionCfg) {
        let Some(placeholders) = &mut self.placeholders else { return };
        placeholders.note(function, cfg, &unit.no_return, unit.map.functions.len(), &mut unit.map.counters);
    }

    fn inserted(&mut self, _: &PlannedFunction, base: Value, _: PathEnd, _: Option<LLVMMetadataRef>) {
        self.placeholders.iter_mut().for_each(|placeholders| placeholders.resolve(base));
    }

    fn edge_profile(&mut self) -> Option<EdgeProfile> {
        self.placeholders.take().map(Placeholders::finish)
    }

    fn as_dyn(&mut self) -> &mut dyn Observer {
        self
    }
}
