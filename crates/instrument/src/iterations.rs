//! Counts sequences of paths over several loop iterations while the program runs, without storing a stream. A stack variable holds the
//! classes of the last paths of the current call; they form the context in which the next path is counted
//! ([`trodden_selective::iterations`]).
//!
//! The variable is in memory, so after a `longjmp` it still holds the most recent paths, not those before the `setjmp`.

use crate::llvm::{Builder, DebugLocation, Module, Value};
use crate::planned_function::PlannedFunction;
use crate::program_passes;
use crate::segments::places::CounterWordMapping;
use std::collections::BTreeSet;
use trodden_flow::part::PathEnds;
use trodden_flow::plan::probe_costs;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Numbering, Origin, Plan, ProbeProgram, Probes};
use trodden_selective::iterations::{IterationNumbering, IterationNumberingError};
use trodden_unit::EdgeKind;
use trodden_unit::iterations::{IterationFunction, IterationPath, end_of_iteration_path};
use trodden_unit::observe::IterationWords;

pub struct IterationPlan {
    /// What the unit's map says about these counters.
    pub words: IterationWords,
    numbering: IterationNumbering,
    places: CounterWordMapping,
    counted: BTreeSet<Edge>,
    /// Edges on which a path ends and after which the activation may start another path: cut edges and, if control may come back by
    /// `longjmp`, edges to calls that do not return.
    continued: BTreeSet<Edge>,
}

#[derive(Clone, Copy)]
pub struct IterationCode<'a> {
    plan: &'a IterationPlan,
    function: Value,
    /// Address of the stack variable with the context; `None` if all counted paths lie within one iteration.
    context: Option<Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum IterationPlanError {
    #[error(transparent)]
    Numbering(#[from] IterationNumberingError),
    #[error("found no hash function for the function's paths over several iterations of a loop. Count paths over fewer iterations")]
    NoPerfectHashError,
}

impl IterationPlan {
    /// Plans a function, and replaces its probe program with one that counts the given paths over iterations. `dag` and `numbering` must be
    /// the ones to which these paths refer.
    pub fn new(
        planned: &mut PlannedFunction,
        (dag, numbering): (Dag, Numbering),
        (known, iterations, chords): (&IterationFunction, u32, bool),
        first_word: u64,
    ) -> Result<IterationPlan, IterationPlanError> {
        let paths: Vec<IterationPath> = known.counted.keys().cloned().collect();
        let numbered = IterationNumbering::new((&dag, &numbering), iterations, &paths)?;
        let ends = PathEnds::without_dummy_entry_edges(&dag);
        let on_edge = |end: DagEdgeId| match dag.edge(end).origin {
            Origin::Real(edge) | Origin::Leave(edge) => Some(edge),
            Origin::Enter(_) | Origin::Stop(_) => None,
        };
        let key = |(key, path): (&u64, &usize)| {
            let end = end_of_iteration_path(&paths[*path], &ends, (&dag, &numbering)).and_then(on_edge);
            (*key, (*path as u32, 0), end)
        };
        let keys: Vec<_> = numbered.keys.iter().map(key).collect();
        let places = CounterWordMapping::with_consecutive_words(&keys).ok_or(IterationPlanError::NoPerfectHashError)?;
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
        planned.program.move_counts_to_ends(&ends);
        program_passes::verify_probe_program(&planned.program);
        let words = IterationWords {
            first_word,
            iterations,
            paths: places.encoded_pairs(|(path, _)| u64::from(*path)).into_iter().map(|path| paths[path as usize].clone()).collect(),
        };
        planned.program.keep_counts_only_on(|edge| counted.contains(&edge), |edge| continued.contains(&edge));
        Ok(IterationPlan { words, numbering: numbered, places, counted, continued })
    }

    pub fn declare_iteration_code(&self, module: Module, function: Value, location: Option<DebugLocation>) -> IterationCode<'_> {
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
    /// Emits the code for an edge on which a path, whose edge labels add up to `sum`, ends or is counted. `counters` is the address of the
    /// unit's counters. Returns the address of the word to increment; `None` if nothing is counted on this edge.
    pub fn emit_path_end(&self, builder: &Builder, edge: Edge, sum: Value, counters: Value) -> Option<Value> {
        let IterationPlan { numbering, words, places, counted, continued } = self.plan;
        let (i64, class) = (builder.module.i64(), builder.add(sum, builder.constant(1)));
        let (is_counted, continues) = (counted.contains(&edge), continued.contains(&edge));
        // With two iterations, the next context is just the class of the path that ends here.
        let needs_context = is_counted && places.depends_on_key(edge) || continues && numbering.iterations > 2;
        let key = match self.context.filter(|_| needs_context) {
            Some(context) => {
                let before = builder.shift_left(builder.load(i64, context), builder.constant(numbering.class_bits.into()));
                builder.or(before, class)
            }
            None => class,
        };
        let word = is_counted.then(|| {
            let first = builder.offset(i64, counters, builder.constant(words.first_word));
            builder.offset(i64, first, places.emit_word(builder, edge, key, self.function))
        });
        if let Some(context) = self.context.filter(|_| continues) {
            let next = if numbering.iterations > 2 { builder.and(key, builder.constant(numbering.context_mask())) } else { class };
            builder.store(next, context);
        }
        word
    }
}
