//! Records the sequence of paths and calls: the program writes an event at function entry, where paths end, and at calls
//! ([`crate::stream`]).

use super::{Observer, interesting};
use crate::describe::FunctionCfg;
use crate::emit;
use crate::error::InstrumentError;
use crate::llvm::{Block, DebugLocation, Module, Value};
use crate::no_return::NoReturnAnalysis;
use crate::options::PluginOptions;
use crate::path_end::PathEndAction;
use crate::planned_function::{CountedPaths, PlannedFunction};
use crate::program_passes;
use crate::stream::{StreamRuntimeFunctions, may_resume_after_unwinding, stream_edges};
use crate::unit::Unit;
use std::os::unix::ffi::OsStrExt;
use trodden_flow::frequency::{Frequencies, branch_weights};
use trodden_flow::program::PassChoices;
use trodden_flow::program::operation::Operation;
use trodden_flow::{Edge, Plan, ProbeProgram};
use trodden_unit::BlockKind;

pub struct PathStream {
    streams: StreamRuntimeFunctions,
    /// Finds the calls that get an event: those that may not return, and those of functions of this unit. The event before a function's
    /// entry tells where it was called.
    no_return: NoReturnAnalysis,
}

impl PathStream {
    pub fn new(module: Module, options: &PluginOptions) -> PathStream {
        let no_return = NoReturnAnalysis::new(module, options.reach_all).with_calls_to_defined_functions(true);
        PathStream { streams: StreamRuntimeFunctions::declare(module), no_return }
    }
}

impl Observer for PathStream {
    /// Functions that catch exceptions or `longjmp` are always observed, because the stream must show where unwinding ends.
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        interesting::reason_to_skip(unit, function).filter(|_| !may_resume_after_unwinding(function))
    }

    fn measured_edge_counts<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        interesting::find_interesting_paths(unit, name, cfg).map(|known| known.edges.as_slice())
    }

    /// Plans events at all calls, in addition to those at the ends of paths.
    fn replan_function(
        &mut self,
        unit: &mut Unit,
        planned: PlannedFunction,
        prepared: &[(Block, BlockKind)],
    ) -> Result<PlannedFunction, InstrumentError> {
        let with_calls = FunctionCfg::new(planned.function, prepared, &self.no_return, &mut unit.positions);
        plan_events(unit, planned, with_calls)
    }

    fn choose_passes(&self, _: &Unit, _: &PlannedFunction) -> PassChoices {
        PassChoices::COUNTING_AT_PATH_ENDS
    }

    fn rewrite_program(&self, program: &mut ProbeProgram, cfg: &FunctionCfg) {
        program_passes::write_stream(program, stream_edges(cfg));
    }

    fn emit_function_entry<'p>(
        &self,
        unit: &Unit,
        planned: &'p PlannedFunction,
        location: Option<DebugLocation>,
    ) -> (Value, PathEndAction<'p>) {
        match planned.program.operations_at_entry().contains(&Operation::EnterCall) {
            true => {
                let counters = unit.context.counters;
                let stream = self.streams.emit_function_entry(planned.function, unit.map.counters, counters, location);
                (counters, PathEndAction::Stream(stream))
            }
            false => (unit.emit_thread_counters(planned, location), PathEndAction::Word),
        }
    }

    fn after_probe_insertion(&mut self, planned: &PlannedFunction, _: Value, at_end: PathEndAction, location: Option<DebugLocation>) {
        if let PathEndAction::Stream(stream) = at_end {
            stream.append_resume_events_after_unwinding(planned.function, &planned.cfg, location);
        }
    }

    fn remove_unused_declarations(&self, unit: &Unit) {
        self.streams.remove_unused_declarations();
        if let Some(pattern) = &unit.options.recorder {
            emit::define_default_output(unit.module, pattern.as_bytes());
        }
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}

/// Plans the probe program that writes a function's events. Compared with the counting program, its graph has additional edges for calls,
/// but paths are cut at the same edges.
fn plan_events(unit: &Unit, own: PlannedFunction, cfg: FunctionCfg) -> Result<PlannedFunction, InstrumentError> {
    let extra_edges = cfg.edges_missing_from(&own.cfg);
    if extra_edges.is_empty() && cfg.blocks == own.cfg.blocks {
        return Ok(PlannedFunction { cfg, ..own });
    }
    let graph = &cfg.graph;
    let (frequencies, is_measured) = (Frequencies::estimate(graph, &branch_weights(graph, &cfg.hints)), false);
    let edges: Vec<Edge> = graph.edges().filter(|edge| extra_edges.binary_search_by_key(edge, |call| call.0).is_err()).collect();
    let cuts: Vec<_> = own.program.dag().cuts().iter().map(|cut| (edges[cut.edge.index()], cut.reason)).collect();
    let options = &unit.options.plan;
    let (dag, numbering) =
        Plan::cut_and_number(graph, &cuts, options.entries).map_err(|_| InstrumentError::TooManyEvents(own.function.name()))?;
    let plan = Plan::from_numbering(dag, numbering, graph, &frequencies, options);
    let program = ProbeProgram::from_plan(graph, &plan);
    let counted = Some(Box::new(CountedPaths { blocks: own.cfg.blocks, graph: own.cfg.graph, program: own.program, extra_edges }));
    Ok(PlannedFunction { cfg, program, frequencies, is_measured, counted, ..own })
}
