//! Counts one copy's part of the paths. A program can be built in several copies, each of which counts other paths; here only those
//! assigned to this copy are counted, and a function without any is not changed. A copy of a residual build, which counts only unknown
//! paths, is instrumented like such a build.

use super::Observer;
use super::unknown::UnknownPaths;
use crate::describe::FunctionCfg;
use crate::error::InstrumentError;
use crate::llvm::{DebugLocation, Module, Value};
use crate::path_end::PathEndAction;
use crate::planned_function::PlannedFunction;
use crate::unit::{Unit, count_each_iteration};
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::{DominantCounting, EarlyCounting, PassChoices};
use trodden_flow::{Plan, ProbeProgram};
use trodden_unit::{FunctionPart, Storage, graph_hash, observe};

struct CopyPart {
    /// True if it is also counted how often the copy's probes execute.
    count_hits: bool,
}

pub fn create_part_observer(module: Module, part: observe::CopyPart) -> Box<dyn Observer> {
    match part.known {
        Some(_) => Box::new(UnknownPaths::new(module, PassChoices::accumulating_in_registers, reason_to_skip)),
        None => Box::new(CopyPart { count_hits: part.count_hits }),
    }
}

/// Skips functions in which this copy counts nothing.
fn reason_to_skip(unit: &Unit, function: Value) -> Option<&'static str> {
    find_function_part(unit, &function.name()).is_none().then_some("other copies of the program count its paths")
}

fn find_function_part<'u>(unit: &'u Unit, name: &str) -> Option<&'u FunctionPart> {
    unit.options.parts.as_ref()?.get(unit.options.experiment.part()?.origin, name)
}

impl Observer for CopyPart {
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        reason_to_skip(unit, function)
    }

    fn plan(&self, unit: &Unit, name: &str, cfg: &FunctionCfg, _: &Frequencies) -> Result<Plan, InstrumentError> {
        let other = || InstrumentError::PartMismatch(name.to_owned());
        let known = find_function_part(unit, name).filter(|k| k.shape == graph_hash(&cfg.blocks, &cfg.graph)).ok_or_else(other)?;
        let (dag, _) =
            Plan::cut_and_number_if_same_count(&cfg.graph, &known.cuts, unit.options.plan.entries, known.paths).ok_or_else(other)?;
        Plan::from_part(dag, known.part.clone()).ok_or_else(other)
    }

    /// If executions of probes are counted, each iteration is counted when it ends. Counting paths before they end would gain nothing,
    /// because the only edge on which a path is known is the last one.
    fn choose_passes(&self, unit: &Unit, planned: &PlannedFunction) -> PassChoices {
        let chosen = if self.count_hits { count_each_iteration(unit.options.choices) } else { unit.choose_passes(planned) };
        PassChoices { early: EarlyCounting::Never, dominant: DominantCounting::Shared, ..chosen }
    }

    fn rewrite_program(&self, program: &mut ProbeProgram, _: &FunctionCfg) {
        if self.count_hits {
            program.count_hits();
        }
    }

    fn emit_function_entry<'p>(
        &self,
        unit: &Unit,
        planned: &'p PlannedFunction,
        location: Option<DebugLocation>,
    ) -> (Value, PathEndAction<'p>) {
        let hits = if let Storage::Labels(labels) = unit.choose_storage(planned) { labels.hit_counter_index() } else { None };
        (unit.emit_thread_counters(planned, location), PathEndAction::Part(hits))
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}
