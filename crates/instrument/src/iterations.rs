//! Paths over iterations counted online, without a stream: a stack variable has the classes of the activation's last paths, which is the
//! context in which a path is counted ([`trodden_selective::iterations`]).
//!
//! The context is in memory, so control that comes back by `longjmp` finds the paths that have ended since, not those before `setjmp`.

use crate::llvm::{Builder, DebugLocation, Module, Value};
use crate::planned_function::PlannedFunction;
use crate::program_passes;
use crate::segments::places::WordPlaces;
use std::collections::BTreeSet;
use trodden_flow::part::Ends;
use trodden_flow::plan::probe_costs;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Numbering, Origin, Plan, ProbeProgram, Probes};
use trodden_selective::iterations::{IterationNumbering, IterationNumberingError};
use trodden_unit::EdgeKind;
use trodden_unit::iterations::{IterationFunction, IterationPath, end_of};
use trodden_unit::observe::IterationWords;

pub struct IterationPlan {
    /// The entry in the map.
    pub words: IterationWords,
    numbering: IterationNumbering,
    places: WordPlaces,
    counted: BTreeSet<Edge>,
    /// Edges on which a path ends and after which the activation may start another path: cut edges and, if control may come back by
    /// `longjmp`, edges to calls that do not return.
    continued: BTreeSet<Edge>,
}

#[derive(Clone, Copy)]
pub struct IterationCode<'a> {
    plan: &'a IterationPlan,
    function: Value,
    /// Address of the context; `None` if no path over several iterations is counted.
    context: Option<Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum IterationPlanError {
    #[error(transparent)]
    Numbering(#[from] IterationNumberingError),
    #[error("cannot find a hash function for its paths over iterations. Count paths over fewer iterations")]
    NoHash,
}

impl IterationPlan {
    /// Plans a function, and replaces its program by one that counts these paths over iterations. `dag` and `numbering` are those of the
    /// set.
    pub fn new(
        planned: &mut PlannedFunction,
        (dag, numbering): (Dag, Numbering),
        (known, iterations, chords): (&IterationFunction, u32, bool),
        first_word: u64,
    ) -> Result<IterationPlan, IterationPlanError> {
        let paths: Vec<IterationPath> = known.counted.keys().cloned().collect();
        let numbered = IterationNumbering::new((&dag, &numbering), iterations, &paths)?;
        let ends = Ends::within_paths(&dag);
        let on_edge = |end: DagEdgeId| match dag.edge(end).origin {
            Origin::Real(edge) | Origin::Leave(edge) => Some(edge),
            Origin::Enter(_) | Origin::Stop(_) => None,
        };
        let key = |(key, path): (&u64, &usize)| {
            let end = end_of(&paths[*path], &ends, (&dag, &numbering)).and_then(on_edge);
            (*key, (*path as u32, 0), end)
        };
        let keys: Vec<_> = numbered.keys.iter().map(key).collect();
        let places = WordPlaces::minimal(&keys).ok_or(IterationPlanError::NoHash)?;
        let counted: BTreeSet<Edge> = known.ends.iter().filter(|end| ends.contains(**end)).filter_map(|end| on_edge(*end)).collect();
        let (graph, frequencies) = (&planned.cfg.graph, &planned.frequencies);
        let probes = match chords {
            true => Probes::on_chords(&dag, &numbered.labels, &probe_costs(&dag, graph, frequencies)),
            false => Probes::direct(&numbered.labels),
        };
        let has_contexts = paths.iter().any(|path| path.len() > 1);
        let comes_back = dag.cuts().iter().any(|cut| cut.reason == CutReason::ReturnsTwice);
        let does_not_return = |edge: Edge| planned.cfg.graph.kind(edge) == EdgeKind::NoReturn;
        let continues = |edge: &Edge| has_contexts && (dag.cut(*edge).is_some() || comes_back && does_not_return(*edge));
        let continued: BTreeSet<Edge> = graph.edges().filter(continues).collect();
        let plan = Plan { dag, numbering, probes, partial: None, part: None };
        planned.program = ProbeProgram::from_labels(graph, &plan, numbered.interesting.clone());
        planned.program.count_at(&ends);
        program_passes::verify(&planned.program);
        let words = IterationWords {
            first_word,
            iterations,
            paths: places.pairs(|(path, _)| u64::from(*path)).into_iter().map(|path| paths[path as usize].clone()).collect(),
        };
        planned.program.count_only_on(|edge| counted.contains(&edge), |edge| continued.contains(&edge));
        Ok(IterationPlan { words, numbering: numbered, places, counted, continued })
    }

    pub fn begin(&self, module: Module, function: Value, location: Option<DebugLocation>) -> IterationCode<'_> {
        let context = (!self.continued.is_empty()).then(|| {
            let builder = Builder::before(module, function.entry().after_allocas(), location);
            let context = builder.allocate(module.i64());
            builder.store(builder.constant(0), context);
            context
        });
        IterationCode { plan: self, function, context }
    }
}

impl IterationCode<'_> {
    /// Emits the code where a path with this sum of labels ends, or is counted. Returns the address of the word to count in, given the
    /// address of the unit's counters; `None` if nothing is counted here.
    pub fn path_ends(&self, builder: &Builder, edge: Edge, sum: Value, counters: Value) -> Option<Value> {
        let IterationPlan { numbering, words, places, counted, continued } = self.plan;
        let (i64, class) = (builder.module.i64(), builder.add(sum, builder.constant(1)));
        let (is_counted, continues) = (counted.contains(&edge), continued.contains(&edge));
        // With two iterations, the next context is the class.
        let needs_context = is_counted && places.looks_up(edge) || continues && numbering.iterations > 2;
        let key = match self.context.filter(|_| needs_context) {
            Some(context) => {
                let before = builder.shift_left(builder.load(i64, context), builder.constant(numbering.class_bits.into()));
                builder.or(before, class)
            }
            None => class,
        };
        let word = is_counted.then(|| {
            let first = builder.offset(i64, counters, builder.constant(words.first_word));
            builder.offset(i64, first, places.word(builder, edge, key, self.function))
        });
        if let Some(context) = self.context.filter(|_| continues) {
            let next = if numbering.iterations > 2 { builder.and(key, builder.constant(numbering.context_mask())) } else { class };
            builder.store(next, context);
        }
        word
    }
}
