//! Plans, verifies and emits the counting of interesting paths, a given subset of a function's paths: each has a counter word of its own,
//! and all other paths share one ([`trodden_flow::interesting`]).
//!
//! The word is computed without branches. Its index is the path register, a hash of it, or its upper bits. If this index is out of range,
//! or a constant table shows that the word belongs to a different path, the last word is used. If the register is constant, so is the word.
//! Table entries have as few bytes as possible.

use crate::llvm::{Builder, Module, Type, Value};
use llvm_sys::LLVMIntPredicate;
use std::time::{Duration, Instant};
use trodden_flow::frequency::Frequencies;
use trodden_flow::interesting::PathEndCounterMapping;
use trodden_flow::interesting::UninterestingPathAliases;
use trodden_flow::placement::Probes;
use trodden_flow::plan::probe_costs;
use trodden_flow::program::InterestingPathCells;
use trodden_flow::{Dag, Graph, Numbering, Plan, PlanOptions, ProbeProgram};
use trodden_selective::plan::{InterestingInput, InterestingPlanError, map_register_to_listed_counters, plan_interesting};
use trodden_selective::verify::VerifyBudget;
use trodden_selective::{Budget, NumberOptions, RegisterPlacement};
use trodden_unit::{InterestingWords, StorageAliases};

/// How many random orders of out-edges preferential numbering tries in order to get a small range of numbers. With 0 or 128 instead, the
/// time of three programs changes by at most 0.4 % (docs/benchmarks/constants.md).
pub const PREFERENTIAL_NUMBERING_RESTARTS: u32 = 16;

/// A function's interesting paths, and the options for counting them.
pub struct InterestingRequest<'a> {
    pub graph: &'a Graph,
    pub frequencies: &'a Frequencies,
    /// The numbering scheme, the interesting paths, and the edges that are excluded from the flow.
    pub input: InterestingInput<'a>,
    pub options: &'a PlanOptions,
    pub time_limit_s: u64,
}

/// Plans a program that counts the interesting paths of an acyclic graph.
///
/// # Errors
/// Fails if the verifier rejects the numbering, or if counting all paths is cheaper.
pub fn plan_interesting_paths(request: &InterestingRequest, dag: Dag, numbering: Numbering) -> Result<ProbeProgram, InterestingPlanError> {
    let InterestingRequest { graph, frequencies, input, options, .. } = request;
    let began = Instant::now();
    let limit = Duration::from_secs(request.time_limit_s);
    let stop = || began.elapsed() >= limit;
    let placement = if options.chords { RegisterPlacement::Cheaper } else { RegisterPlacement::Direct };
    let number = NumberOptions { restarts: PREFERENTIAL_NUMBERING_RESTARTS, placement, budget: Budget { steps: u64::MAX, stop: &stop } };
    let planned = plan_interesting(graph, (dag, numbering), input, frequencies, &number, &VerifyBudget::default())?;
    Ok(ProbeProgram::from_interesting(graph, planned))
}

/// Plans a probe program that counts a function's unknown paths, those that earlier runs have not taken. The numbering in the request
/// distinguishes them from the known ones.
///
/// # Errors
/// Fails if the verifier rejects the numbering, or if its numbers do not fit.
pub fn plan_unknown_paths(request: &InterestingRequest, dag: Dag, numbering: Numbering) -> Result<ProbeProgram, InterestingPlanError> {
    let InterestingRequest { graph, frequencies, input, options, .. } = request;
    let placement = if options.chords { RegisterPlacement::Cheaper } else { RegisterPlacement::Direct };
    let number = NumberOptions { restarts: PREFERENTIAL_NUMBERING_RESTARTS, placement, ..NumberOptions::default() };
    let paths: Vec<_> = input.ids.iter().filter_map(|id| numbering.path(&dag, *id)).collect();
    let weights = probe_costs(&dag, graph, frequencies);
    let budget = VerifyBudget::default();
    let (ending, increments) = map_register_to_listed_counters(input.scheme, (&dag, &numbering), &paths, &weights, &number, &budget)?;
    let plan = Plan { probes: Probes::from_increments(increments), dag, numbering, partial: None, part: None };
    Ok(ProbeProgram::from_preferential(graph, &plan, ending, input.ids.to_vec()))
}

pub fn program_for_all_paths(request: &InterestingRequest, dag: Dag, numbering: Numbering) -> ProbeProgram {
    ProbeProgram::from_plan(request.graph, &Plan::from_numbering(dag, numbering, request.graph, request.frequencies, request.options))
}

pub fn describe_interesting_words(cells: &InterestingPathCells, first_word: u64) -> InterestingWords {
    let number = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    let aliases = match cells.aliases {
        UninterestingPathAliases::Exact(aliases) => StorageAliases::Exact(number(aliases)),
        UninterestingPathAliases::Sampled { aliases, of } => StorageAliases::Sampled { aliases, of },
    };
    InterestingWords { first_word, words: cells.ending.counter_count(), paths: cells.paths.clone(), aliases, proven: cells.proven }
}

/// Emits the computation of the counter word in which a path is counted.
#[derive(Clone, Copy)]
pub struct InterestingPathCode<'a> {
    ending: &'a PathEndCounterMapping,
    /// The lookup table and the type of its entries; `None` if the path ending needs no table.
    table: Option<(Value, Type)>,
}

impl<'a> InterestingPathCode<'a> {
    /// Adds the lookup table to the module, if the path ending needs one.
    pub fn declare(module: Module, function: &str, ending: &'a PathEndCounterMapping) -> InterestingPathCode<'a> {
        InterestingPathCode {
            ending,
            table: InterestingPathCode::lookup_table_entries(ending).map(|entries| add_constant_table(module, function, &entries)),
        }
    }

    /// Returns the entries of the lookup table; `None` if the path ending needs no table.
    pub fn lookup_table_entries(ending: &PathEndCounterMapping) -> Option<Vec<u64>> {
        match ending {
            PathEndCounterMapping::Direct { .. } => None,
            // The extra entry 0 belongs to the last word: the code reads it, but ignores the result.
            PathEndCounterMapping::Checked { expected, .. } => Some(expected.iter().copied().chain([0]).collect()),
            PathEndCounterMapping::Hashed { keys, .. } => Some(keys.clone()),
        }
    }

    /// Uses an existing lookup table, whose entries are those that [`InterestingPathCode::lookup_table_entries`] returns.
    pub fn with_table(ending: &'a PathEndCounterMapping, table: (Value, Type)) -> InterestingPathCode<'a> {
        InterestingPathCode { ending, table: Some(table) }
    }

    pub fn constant_word(&self, register: i64) -> u64 {
        self.ending.counter_of(register)
    }

    pub fn emit_index(&self, builder: &Builder, register: Value) -> Value {
        let constant = |value: u64| builder.constant(value);
        if self.ending.counter_count() == 1 {
            return constant(0);
        }
        let last = constant(self.ending.counter_count() - 1);
        let right = |value: Value, bits: u32| builder.shift_right(value, constant(bits.into()));
        let choose = |condition: Value, value: Value| builder.select(condition, value, last);
        let below = |value: Value| choose(builder.compare(LLVMIntPredicate::LLVMIntULT, value, last), value);
        match self.ending {
            PathEndCounterMapping::Direct { bias, checked, .. } => {
                let word = add_constant(builder, register, *bias);
                if *checked { below(word) } else { word }
            }
            PathEndCounterMapping::Checked { bias, shift, .. } => {
                let biased = add_constant(builder, register, *bias);
                let word = below(right(biased, *shift));
                choose(self.emit_is_in_table(builder, word, biased), word)
            }
            PathEndCounterMapping::Hashed { multiplier, shift, .. } => {
                let word = right(builder.multiply(register, constant(*multiplier)), *shift);
                choose(self.emit_is_in_table(builder, word, register), word)
            }
        }
    }

    /// Emits a condition that is true for paths without a word of their own.
    pub fn emit_has_no_own_word(&self, builder: &Builder, register: Value) -> Value {
        builder.equal(self.emit_index(builder, register), builder.constant(self.ending.counter_count() - 1))
    }

    /// Emits a condition that is true if the entry of the lookup table for `word` equals `number`.
    fn emit_is_in_table(&self, builder: &Builder, word: Value, number: Value) -> Value {
        let (table, entry) = self.table.expect("such an ending has a table");
        builder.equal(builder.zero_extend(builder.load(entry, builder.offset(entry, table, word))), number)
    }
}

fn add_constant(builder: &Builder, register: Value, by: i64) -> Value {
    if by == 0 { register } else { builder.add(register, builder.module.constant(by)) }
}

/// Adds a constant array of numbers with as few bytes each as possible. `u64::MAX` means "none", and becomes the maximum of the chosen
/// width.
pub fn add_constant_table(module: Module, function: &str, entries: &[u64]) -> (Value, Type) {
    const NONE: u64 = u64::MAX;
    let max = entries.iter().copied().filter(|e| *e != NONE).max().unwrap_or(0);
    let bytes = [1usize, 2, 4].into_iter().find(|b| max < (1 << (8 * b)) - 1).unwrap_or(8);
    let content: Vec<u8> = entries.iter().flat_map(|e| e.to_le_bytes().into_iter().take(bytes)).collect();
    let table = module.add_bytes(&format!("{function}.paths"), &content);
    table.set_alignment(bytes as u32);
    (table, module.context().integer(8 * bytes as u32))
}
