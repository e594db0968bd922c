//! Units that count interprocedural segments: what [`crate::segments`] decides, done to a function.

use super::{Error, Unit, path_sets};
use crate::counting::Counters;
use crate::describe::FunctionCfg;
use crate::entry;
use crate::interesting::RESTARTS;
use crate::llvm::Value;
use crate::places;
use crate::probes;
use crate::sample::PlannedFunction;
use crate::segments::{FunctionOnSegments, SegmentPlan, declare_context, name_for_others};
use crate::stream::PLAIN;
use crate::supergraph::version::{ContextSource, SegmentVersion};
use crate::supergraph::{OnSegments, Supergraph};
use llvm_sys::target_machine::LLVMTargetMachineRef;
use std::collections::BTreeSet;
use std::rc::Rc;
use trodden_flow::part::pspp;
use trodden_flow::plan::probe_costs;
use trodden_flow::program::operation::Operation;
use trodden_flow::{Dag, Numbering, Plan, ProbeProgram, Probes};
use trodden_selective::contexts::{ContextNumbering, preferential_contexts};
use trodden_unit::experiment::{Paths, SegmentNumbering};
use trodden_unit::{SegmentFunction, SegmentSet, SegmentWords, Skipped, Storage, shape};

/// A function with its plan, its number in the set, and the preferential numbering that its plan goes by, if any.
type PlannedSegments = (PlannedFunction, u32, Option<ContextNumbering>);

/// A function with its plan and that of its segments.
struct OnPath {
    planned: PlannedFunction,
    number: u32,
    segments: SegmentPlan,
    entries: f64,
}

impl OnPath {
    fn on_segments(&self) -> OnSegments<'_> {
        let OnPath { planned, number, segments, entries } = self;
        OnSegments { function: planned.function, number: *number, cfg: &planned.cfg, plan: segments, entries: *entries }
    }
}

impl Unit {
    /// Makes functions give callees their contexts, and count their first paths by contexts.
    pub(super) fn count_segments(&mut self, functions: &[Value], set: &Rc<SegmentSet>, machine: LLVMTargetMachineRef) -> Result<(), Error> {
        let planned = functions.iter().filter_map(|f| self.plan_segments(*f, set).transpose()).collect::<Result<Vec<_>, _>>()?;
        let on_paths = self.plan_words(planned, set);
        let all: Vec<OnSegments> = on_paths.iter().map(OnPath::on_segments).collect();
        let supergraph = Supergraph::new(self.module, &self.map.source, set, &all);
        for (at, on) in on_paths.iter().enumerate() {
            for version in supergraph.of_function(at) {
                self.insert_segments(on, version);
            }
            let reads_variable = supergraph.of_function(at).next().is_some_and(|own| own.context_source == ContextSource::Variable);
            if set.functions()[on.number as usize].local && on.segments.words.words > 0 && reads_variable {
                name_for_others(self.module, &self.map.source.clone(), on.planned.function);
            }
        }
        let made = supergraph.inline(machine)?;
        self.context_words.iter().for_each(|words| words.clear_where_calls_return_twice(self.module));
        for (on, made) in on_paths.into_iter().zip(made) {
            let codes: Vec<Value> = made.copies.iter().copied().chain([on.planned.function]).collect();
            self.finish_code(&codes);
            let words = SegmentWords { inlined: made.inlined, duplicated: made.duplicated, ..on.segments.words };
            self.enter_with(on.planned, Storage::Segments(words));
        }
        Ok(())
    }

    /// Plans a function by the numbering in which segments name its paths; none if it is not the one that they run through.
    fn plan_segments(&mut self, function: Value, set: &Rc<SegmentSet>) -> Result<Option<PlannedSegments>, Error> {
        let mut planned = self.plan(function)?;
        let Some(number) = self.segments_of(&function.name(), &planned.cfg).map(|(number, _)| number) else {
            let reason = "it has another shape than the function of its name that segments run through";
            self.map.skipped.push(Skipped { name: function.name(), reason: reason.into() });
            return Ok(None);
        };
        let known = &set.functions()[number as usize];
        let numbered = Plan::cut_as(&planned.graph, &known.cuts, self.options.plan.entries, known.paths);
        let (dag, numbering) = numbered.ok_or_else(|| Error::OtherPaths(function.name()))?;
        let preferential = self.preferential_contexts(&function.name(), known, set, (&dag, &numbering));
        let (graph, frequencies, options) = (&planned.graph, &planned.frequencies, &self.options.plan);
        planned.program = match (&preferential, self.options.experiment.paths()) {
            (Some(found), _) => {
                let probes = match options.chords {
                    true => Probes::on_chords(&dag, &found.values, &probe_costs(&dag, graph, frequencies)),
                    false => Probes::direct(&found.values),
                };
                let plan = Plan { dag, numbering, probes, partial: None, part: None };
                ProbeProgram::from_registers(graph, &plan, found.ending.clone())
            }
            (None, Paths::Segments { numbering: SegmentNumbering::PreciseSelective, .. }) => {
                self.selective(&planned, (dag, numbering), &set.paths_of(number))
            }
            _ => ProbeProgram::from_plan(graph, &Plan::from_numbering(dag, numbering, graph, frequencies, options)),
        };
        path_sets::verify(&planned)?;
        let PlannedFunction { cfg, graph, program, frequencies, .. } = &mut planned;
        probes::run_passes(program, frequencies, &places::block_properties(cfg, graph), PLAIN);
        Ok(Some((planned, number, preferential)))
    }

    /// The preferential numbering of a function's segments, where that is asked for. Where it has no more pairs than interesting ones each
    /// pair is its word anyway; if numbers do not fit, the map says that the segments are hashed.
    fn preferential_contexts(
        &mut self,
        name: &str,
        known: &SegmentFunction,
        set: &SegmentSet,
        (dag, numbering): (&Dag, &Numbering),
    ) -> Option<ContextNumbering> {
        let is_asked = matches!(self.options.experiment.paths(), Paths::Segments { numbering: SegmentNumbering::Preferential, .. });
        let (contexts, bits) = (known.contexts.len() as u32, SegmentWords::path_bits(known.paths));
        let rows = (u64::from(contexts) + 1) << bits;
        let pairs: Vec<(u32, u64)> = known.interesting.iter().copied().collect();
        if !is_asked || set.counts_every() || !known.counts || contexts == 0 || pairs.is_empty() || rows <= pairs.len() as u64 + 1 {
            return None;
        }
        match preferential_contexts((dag, numbering), (contexts, bits), &pairs, RESTARTS) {
            Ok(found) => Some(found),
            Err(why) => {
                let reason = format!("its segments are found by a hash, not by their numbers: {why}");
                self.map.instead.push(Skipped { name: name.to_owned(), reason });
                None
            }
        }
    }

    /// The program that distinguishes these paths from one another and from all others, by precise selective labels.
    ///
    /// Source: Afraz, Saha and Kanade, "P3" (2015), algorithm 1, of paths across calls. Such a path is a context and a path: one of
    /// parallel edges, and behind these the function's graph. So the labels of that graph are its own, and a context's is a multiple of
    /// a power of two above all sums of them.
    fn selective(&self, planned: &PlannedFunction, (dag, numbering): (Dag, Numbering), paths: &BTreeSet<u64>) -> ProbeProgram {
        let mut marked = vec![false; dag.edges().len()];
        let edges = paths.iter().filter_map(|path| numbering.path(&dag, *path)).flatten();
        edges.for_each(|edge| marked[edge.index()] = true);
        let interesting = dag.on_whole_paths(|edge| marked[edge.index()]);
        let labels = pspp(&dag, &interesting);
        let (graph, frequencies) = (&planned.graph, &planned.frequencies);
        let probes = match self.options.plan.chords {
            true => Probes::on_chords(&dag, &labels, &probe_costs(&dag, graph, frequencies)),
            false => Probes::direct(&labels),
        };
        let plan = Plan { dag, numbering, probes, partial: None, part: None };
        ProbeProgram::from_labels(graph, &plan, interesting)
    }

    /// Plans where each function counts, one behind the other.
    fn plan_words(&self, planned: Vec<PlannedSegments>, set: &Rc<SegmentSet>) -> Vec<OnPath> {
        let (module, source, mut first_word) = (self.module, self.map.source.clone(), self.map.counters);
        let Paths::Segments { set: identity, numbering } = self.options.experiment.paths() else {
            unreachable!("a unit that counts segments has a set of them");
        };
        let mut plan = |(mut planned, number, preferential): PlannedSegments| {
            let PlannedFunction { cfg, graph, program, frequencies, .. } = &mut planned;
            let source = &source;
            let mut on =
                FunctionOnSegments { module, source, set, number, cfg, graph, program, frequencies, identity, numbering, preferential };
            let segments = SegmentPlan::new(&mut on, first_word);
            let entries = on.entries();
            first_word += segments.words.words;
            // The program that is verified counts every path; what is not on a segment needs no code.
            for edge in graph.edges().filter(|e| !segments.has_code(*e)) {
                let kept = program.operations(edge).iter().copied().filter(|o| !matches!(o, Operation::Count { .. }));
                program.set_operations(edge, kept.collect());
            }
            OnPath { planned, number, segments, entries }
        };
        planned.into_iter().map(&mut plan).collect()
    }

    /// Makes the code of a version.
    fn insert_segments(&mut self, on: &OnPath, version: &SegmentVersion) {
        let (module, OnPath { planned, segments, .. }) = (self.module, on);
        let location = crate::debug::no_line(module, version.code);
        let words = *self.context_words.get_or_insert_with(|| declare_context(module));
        let code = segments.begin(module, version, words, location);
        let base = match segments.words.words {
            0 => self.context.counters,
            // Those that only pass contexts acquire no region.
            _ if version.context_source == ContextSource::None => self.context.counters,
            _ => entry::counters_of_thread(self.context, version.code, location, true),
        };
        let counters = Counters { segments: Some(code), ..self.counters(base, planned) };
        probes::insert(self.context, version.code, &version.cfg, &planned.program, counters);
    }

    /// What the set says of a function, and its number there.
    pub(super) fn segments_of(&self, name: &str, cfg: &FunctionCfg) -> Option<(u32, &SegmentFunction)> {
        let set = self.options.segments.as_ref()?;
        let version = trodden_unit::NameVersion { shape: shape(&cfg.blocks, &cfg.edges), code: cfg.code };
        let number = set.function(&self.map.source, name, version)?;
        let function = &set.functions()[number as usize];
        (function.edges.len() == cfg.edges.len()).then_some((number, function))
    }
}
