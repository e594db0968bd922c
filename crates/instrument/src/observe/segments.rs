//! Counts interprocedural segments, paths that continue across calls: functions pass a context to their callees, which count their first
//! path by context. [`crate::segments`] plans the code, and this module inserts it.

use super::{Observer, plan_function};
use crate::describe::FunctionCfg;
use crate::emit;
use crate::entry;
use crate::error::InstrumentError;
use crate::interesting::PREFERENTIAL_NUMBERING_RESTARTS;
use crate::llvm::{TargetMachine, Value};
use crate::path_end::PathEndAction;
use crate::places;
use crate::planned_function::PlannedFunction;
use crate::probes;
use crate::program_passes;
use crate::segments::hand_over::ContextWords;
use crate::segments::{PlannedFunctionOnSegments, SegmentPlan, declare_context, export_local_name};
use crate::supergraph::version::{ContextSource, SegmentVersion};
use crate::supergraph::{FunctionWithSegments, Supergraph};
use crate::unit::{Unit, verify_plan};
use std::collections::BTreeSet;
use std::rc::Rc;
use trodden_flow::part::precise_selective_labels;
use trodden_flow::plan::probe_costs;
use trodden_flow::program::PassChoices;
use trodden_flow::program::operation::Operation;
use trodden_flow::{Dag, DagEdgeSet, Graph, Numbering, Plan, ProbeProgram, Probes};
use trodden_selective::contexts::{ContextNumbering, preferential_contexts};
use trodden_unit::observe::SegmentNumbering;
use trodden_unit::{NameVersion, Observation, SegmentFunction, SegmentSet, SegmentWords, Skipped, Storage, graph_hash, observe};

/// A planned function, its number in the set of segments, and its preferential numbering if it has one.
type PlannedSegments = (PlannedFunction, u32, Option<ContextNumbering>);

/// Why a function without segments is not counted.
const NO_SEGMENT_REASON: &str = "no counted segment runs through it (--segments)";

#[derive(Default)]
pub struct SegmentCounts {
    context_words: Option<ContextWords>,
}

struct SegmentedFunction {
    planned: PlannedFunction,
    number: u32,
    segments: SegmentPlan,
    entries: f64,
}

impl SegmentedFunction {
    fn as_function_with_segments(&self) -> FunctionWithSegments<'_> {
        let SegmentedFunction { planned, number, segments, entries } = self;
        FunctionWithSegments { function: planned.function, number: *number, cfg: &planned.cfg, plan: segments, entries: *entries }
    }
}

impl Observer for SegmentCounts {
    fn reason_to_skip(&self, unit: &Unit, function: Value) -> Option<&'static str> {
        let is_on_segments = unit.options.segments.as_ref().is_none_or(|set| set.has_function(&unit.map.source, &function.name()));
        (!is_on_segments).then_some(NO_SEGMENT_REASON)
    }

    fn measured_edge_counts<'u>(&self, unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<&'u [u64]> {
        find_segment_function(unit, name, cfg).map(|(_, function)| function.edges.as_slice())
    }

    fn observe_functions(&mut self, unit: &mut Unit, functions: &[Value], machine: TargetMachine) -> Result<(), InstrumentError> {
        let set = &unit.options.segments.clone().expect("a unit that counts segments has a set of them");
        let planned = functions.iter().filter_map(|f| self.plan_segments(unit, *f, set).transpose()).collect::<Result<Vec<_>, _>>()?;
        let on_paths = plan_words(unit, planned, set);
        let all: Vec<FunctionWithSegments> = on_paths.iter().map(SegmentedFunction::as_function_with_segments).collect();
        let supergraph = Supergraph::new(unit.module, &unit.map.source, set, &all);
        for (at, on) in on_paths.iter().enumerate() {
            for version in supergraph.of_function(at) {
                self.insert_version(unit, on, version);
            }
            let reads_word = supergraph.of_function(at).next().is_some_and(|own| own.context_source == ContextSource::Word);
            if set.functions()[on.number as usize].local && on.segments.words.words > 0 && reads_word {
                export_local_name(unit.module, &unit.map.source.clone(), on.planned.function);
            }
        }
        let summary = supergraph.inline_versions(machine)?;
        self.context_words.iter().for_each(|words| words.clear_contexts_after_returning_twice(unit.module));
        for (on, summary) in on_paths.into_iter().zip(summary) {
            let codes: Vec<Value> = summary.copies.iter().copied().chain([on.planned.function]).collect();
            unit.protect_instrumented_code(&codes);
            let words = SegmentWords { inlined: summary.inlined, duplicated: summary.duplicated, ..on.segments.words };
            unit.add_function_with_storage(on.planned, Storage::Segments(words));
        }
        Ok(())
    }

    fn remove_unused_declarations(&self, _: &Unit) {
        self.context_words.iter().for_each(|words| emit::remove_unused_declarations(&[words.0]));
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}

impl SegmentCounts {
    /// Plans a function, keeping the path numbers by which segments refer to its paths; `None` if the segments belong to a different
    /// version of the function.
    fn plan_segments(
        &mut self,
        unit: &mut Unit,
        function: Value,
        set: &Rc<SegmentSet>,
    ) -> Result<Option<PlannedSegments>, InstrumentError> {
        let mut planned = plan_function(unit, self, function)?;
        let Some(number) = find_segment_function(unit, &function.name(), &planned.cfg).map(|(number, _)| number) else {
            let reason = "its shape differs from that of the function with this name in the segments";
            unit.map.skipped.push(Skipped { name: function.name(), reason: reason.into() });
            return Ok(None);
        };
        let known = &set.functions()[number as usize];
        let numbered = Plan::cut_and_number_if_same_count(&planned.cfg.graph, &known.cuts, unit.options.plan.entries, known.paths);
        let (dag, numbering) = numbered.ok_or_else(|| InstrumentError::KnownPathsMismatch(function.name()))?;
        let preferential = preferential_numbering(unit, &function.name(), known, set, (&dag, &numbering));
        let (graph, frequencies, options) = (&planned.cfg.graph, &planned.frequencies, &unit.options.plan);
        planned.program = match (&preferential, unit.options.experiment.observation()) {
            (Some(found), _) => {
                let probes = match options.chords {
                    true => Probes::on_chords(&dag, &found.values, &probe_costs(&dag, graph, frequencies)),
                    false => Probes::direct(&found.values),
                };
                let plan = Plan { dag, numbering, probes, partial: None, part: None };
                ProbeProgram::from_register_ending(graph, &plan, found.ending.clone())
            }
            (None, Observation::SegmentCounts(counts)) if counts.numbering == SegmentNumbering::PreciseSelective => {
                selective_label_program(unit, &planned, (dag, numbering), &set.paths_of(number))
            }
            _ => ProbeProgram::from_plan(graph, &Plan::from_numbering(dag, numbering, graph, frequencies, options)),
        };
        verify_plan(&planned)?;
        let PlannedFunction { cfg, program, frequencies, .. } = &mut planned;
        program_passes::run_passes(program, frequencies, &places::block_properties(cfg), PassChoices::COUNTING_AT_PATH_ENDS);
        Ok(Some((planned, number, preferential)))
    }

    fn insert_version(&mut self, unit: &Unit, on: &SegmentedFunction, version: &SegmentVersion) {
        let (module, SegmentedFunction { planned, segments, .. }) = (unit.module, on);
        let location = crate::debug::location_without_line(module, version.code);
        let words = *self.context_words.get_or_insert_with(|| declare_context(module));
        let code = segments.emit_version_entry(module, version, words, location);
        let base = match segments.words.words {
            0 => unit.context.counters,
            // A function that counts nothing itself and only passes contexts to callees needs no counters.
            _ if version.context_source == ContextSource::None => unit.context.counters,
            _ => entry::emit_thread_counters(unit.context, version.code, location, true),
        };
        let counters = unit.counters(base, PathEndAction::Segment(code));
        probes::insert_function_probes(unit.context, version.code, &version.cfg, &planned.program, counters);
    }
}

/// Returns a numbering that gives the interesting pairs of context and path the lowest numbers, if it is requested and useful; if all pairs
/// are interesting, each has its own word anyway. If the numbers do not fit, the map records that a hash table is used.
fn preferential_numbering(
    unit: &mut Unit,
    name: &str,
    known: &SegmentFunction,
    set: &SegmentSet,
    (dag, numbering): (&Dag, &Numbering),
) -> Option<ContextNumbering> {
    let observation = unit.options.experiment.observation();
    let is_asked = matches!(observation, Observation::SegmentCounts(c) if c.numbering == SegmentNumbering::Preferential);
    let (contexts, bits) = (known.contexts.len() as u32, SegmentWords::bits_for_path(known.paths));
    let rows = (u64::from(contexts) + 1) << bits;
    let pairs: Vec<(u32, u64)> = known.interesting.iter().copied().collect();
    if !is_asked || set.counts_all_pairs() || !known.counts || contexts == 0 || pairs.is_empty() || rows <= pairs.len() as u64 + 1 {
        return None;
    }
    match preferential_contexts((dag, numbering), (contexts, bits), &pairs, PREFERENTIAL_NUMBERING_RESTARTS) {
        Ok(found) => Some(found),
        Err(why) => {
            let reason = format!("its segments are looked up by hash instead of by number: {why}");
            unit.map.fully_counted.push(Skipped { name: name.to_owned(), reason });
            None
        }
    }
}

/// Returns a probe program that distinguishes the given paths from each other and from all others, by precise selective labels.
///
/// Source: Afraz, Saha and Kanade, "P3" (2015), algorithm 1, applied to paths across calls. Such a path consists of a context, modelled as
/// one of several parallel edges, and a path of the function's graph. So the graph keeps its labels, and contexts are multiples of a power
/// of two above all sums of labels.
fn selective_label_program(
    unit: &Unit,
    planned: &PlannedFunction,
    (dag, numbering): (Dag, Numbering),
    paths: &BTreeSet<u64>,
) -> ProbeProgram {
    let edges = paths.iter().filter_map(|path| numbering.path(&dag, *path)).flatten();
    let marked = DagEdgeSet::from_members(dag.edges().len(), edges);
    let interesting = dag.edges_on_marked_paths(|edge| marked.contains(edge));
    let labels = precise_selective_labels(&dag, &interesting);
    let (graph, frequencies) = (&planned.cfg.graph, &planned.frequencies);
    let probes = match unit.options.plan.chords {
        true => Probes::on_chords(&dag, &labels, &probe_costs(&dag, graph, frequencies)),
        false => Probes::direct(&labels),
    };
    let plan = Plan { dag, numbering, probes, partial: None, part: None };
    ProbeProgram::from_labels(graph, &plan, interesting)
}

/// Plans the counter words of all functions, one after the other.
fn plan_words(unit: &Unit, planned: Vec<PlannedSegments>, set: &Rc<SegmentSet>) -> Vec<SegmentedFunction> {
    let (module, source, mut first_word) = (unit.module, unit.map.source.clone(), unit.map.counters);
    let Observation::SegmentCounts(observe::SegmentCounts { set: identity, numbering }) = unit.options.experiment.observation() else {
        unreachable!("a unit that counts segments has a set of them");
    };
    let mut plan = |(mut planned, number, preferential): PlannedSegments| {
        let PlannedFunction { cfg, program, frequencies, .. } = &mut planned;
        let graph: &Graph = &cfg.graph;
        let source = &source;
        let mut on =
            PlannedFunctionOnSegments { module, source, set, number, cfg, graph, program, frequencies, identity, numbering, preferential };
        let segments = SegmentPlan::new(&mut on, first_word);
        let entries = on.estimated_call_count();
        first_word += segments.words.words;
        // The verified program counts every path, but paths that are not part of a segment need no code, so their counts are removed.
        for edge in graph.edges().filter(|e| !segments.has_code_on_edge(*e)) {
            let kept = program.operations(edge).iter().copied().filter(|o| !matches!(o, Operation::Count { .. }));
            program.set_operations(edge, kept.collect());
        }
        SegmentedFunction { planned, number, segments, entries }
    };
    planned.into_iter().map(&mut plan).collect()
}

/// Returns a function's number and entry in the set of segments; `None` if the set lacks it or has a version with a different shape.
fn find_segment_function<'u>(unit: &'u Unit, name: &str, cfg: &FunctionCfg) -> Option<(u32, &'u SegmentFunction)> {
    let set = unit.options.segments.as_ref()?;
    let version = NameVersion { shape: graph_hash(&cfg.blocks, &cfg.graph), code: cfg.code };
    let number = set.find_function(&unit.map.source, name, version)?;
    let function = &set.functions()[number as usize];
    (function.edges.len() == cfg.graph.edge_count()).then_some((number, function))
}
