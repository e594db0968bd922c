//! Units that count interprocedural segments: what [`crate::segments`] decides, done to a function.

use super::{Error, Unit, path_sets};
use crate::counting::Counters;
use crate::describe::FunctionCfg;
use crate::entry;
use crate::llvm::Value;
use crate::places;
use crate::probes;
use crate::sample::Planned;
use crate::segments::{FunctionOnSegments, SegmentPlan, declare_context, name_for_others};
use crate::stream::PLAIN;
use std::rc::Rc;
use trodden_flow::plan::probe_costs;
use trodden_flow::program::operation::Operation;
use trodden_flow::{Plan, ProbeProgram, Probes};
use trodden_unit::{SegmentFunction, SegmentSet, Skipped, Storage, Version, shape};

impl Unit {
    /// Makes a function tell callees their contexts, and count its first paths by contexts.
    pub(super) fn count_segments(&mut self, function: Value, set: &Rc<SegmentSet>) -> Result<(), Error> {
        let mut planned = self.plan(function)?;
        let Some(number) = self.segments_of(&function.name(), &planned.cfg).map(|(number, _)| number) else {
            let reason = "it has another shape than the function of its name that segments run through";
            self.map.skipped.push(Skipped { name: function.name(), reason: reason.into() });
            return Ok(());
        };
        let known = &set.functions()[number as usize];
        let other = || Error::OtherPaths(function.name());
        let (dag, numbering) = Plan::cut_at(&planned.graph, &known.cuts, self.options.plan.entries).map_err(|_| other())?;
        if numbering.paths() != known.paths {
            return Err(other());
        }
        let probes = match self.options.plan.chords {
            true => Probes::on_chords(&dag, numbering.values(), &probe_costs(&dag, &planned.graph, &planned.frequencies)),
            false => Probes::direct(numbering.values()),
        };
        let plan = Plan { dag, numbering, probes, partial: None, share: None };
        planned.program = ProbeProgram::of_plan(&planned.graph, &plan);
        path_sets::verify(&planned)?;
        let segments = self.insert_segments(&mut planned, set, number);
        self.finish_code(function, &[function])?;
        self.enter_with(planned, Storage::Segments(segments.words));
        Ok(())
    }

    fn insert_segments(&mut self, planned: &mut Planned, set: &Rc<SegmentSet>, number: u32) -> SegmentPlan {
        let (module, source) = (self.module, self.map.source.clone());
        let Planned { function, cfg, graph, program, frequencies, .. } = planned;
        probes::run_passes(program, frequencies, &places::block_properties(cfg, graph), PLAIN);
        let on = FunctionOnSegments { module, source: &source, set, number, cfg, graph, program };
        let segments = SegmentPlan::new(&on, self.map.counters);
        // The program that is verified counts every path; what is not on a segment needs no code.
        for edge in graph.edges().filter(|e| !segments.has_code(*e)) {
            let kept = program.operations(edge).iter().copied().filter(|o| !matches!(o, Operation::Count { .. }));
            program.set_operations(edge, kept.collect());
        }
        let location = crate::debug::no_line(module, *function);
        let word = *self.context_word.get_or_insert_with(|| declare_context(module));
        let code = segments.begin(module, *function, word, location);
        let base = match segments.words.words {
            0 => self.context.counters,
            // Callers that only tell contexts claim no region.
            _ => entry::counters_of_thread(self.context, *function, location, true),
        };
        if set.functions()[number as usize].local && segments.words.words > 0 {
            name_for_others(module, &source, *function);
        }
        let counters = Counters { segments: Some(code), ..self.counters(base, planned) };
        let Planned { function, cfg, program, .. } = planned;
        probes::insert(self.context, *function, cfg, program, counters);
        segments
    }

    /// What the set says of a function, and its number there.
    pub(super) fn segments_of(&self, name: &str, cfg: &FunctionCfg) -> Option<(u32, &SegmentFunction)> {
        let set = self.options.segments.as_ref()?;
        let version = Version { shape: shape(&cfg.blocks, &cfg.edges), code: cfg.code };
        let number = set.function(&self.map.source, name, version)?;
        let function = &set.functions()[number as usize];
        (function.edges.len() == cfg.edges.len()).then_some((number, function))
    }
}
