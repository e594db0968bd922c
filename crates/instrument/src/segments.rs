//! Counts interprocedural segments (paths that continue across calls) while the program runs, without a trace: each function has a counter
//! for each pair of a context, which stands for the path of its caller, and a path. Source: K. Vaswani,
//! *Efficient Online Path Profiling*, section 3.4.5 and figure 3.14. [`trodden_unit::segments`] defines segments. The thesis passes the
//! caller's counter as an argument. Here a context number goes through a thread-local word ([`hand_over`]), so signatures stay the same,
//! and other units, indirect calls and tail calls work too. A caller looks up the context of its path in a constant table and stores it
//! before the call. The callee's path register starts with the context in its upper bits (0 if the function is called from elsewhere), and
//! where its first path ends, the word for the register's value is incremented. Within a unit, a callee's context may be known at compile
//! time ([`crate::supergraph`]). Functions are cut at the same edges as in the recorded run, so each path of a segment is one path of the
//! graph.

mod displaced;
pub mod hand_over;
pub mod places;
mod transition;

use crate::calls;
use crate::describe::{EdgeInsertionSite, FunctionCfg, find_function_ending_instruction};
use crate::emit;
use crate::llvm::{Builder, DebugLocation, Module, Value};
use crate::supergraph::version::{ContextSource, SegmentVersion};
use hand_over::{ContextTags, ContextWords};
use indexmap::IndexMap;
use llvm_sys::{LLVMLinkage, LLVMVisibility};
use places::CounterWordMapping;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use transition::{ContextTransition, ContextTransitionTables};
use trodden_flow::frequency::Frequencies;
use trodden_flow::program::CounterCells;
use trodden_flow::program::operation::Operation;
use trodden_flow::{Edge, Graph, Node, Origin, ProbeProgram};
use trodden_selective::contexts::ContextNumbering;
use trodden_unit::observe::SegmentNumbering;
use trodden_unit::{CallerPath, EdgeKind, Identity, SegmentSet, SegmentWords, UnplacedCall};
use trodden_wire::{CONTEXT_ADDRESS_SYMBOL, CONTEXT_BYTES, CONTEXT_SYMBOL};

/// Maximum number of counter words of a function in which every pair of context and path is counted.
const MAX_WORDS_TO_COUNT_EVERY_PAIR: u64 = 1 << 20;
/// Maximum number of counter words of a function that counts only interesting pairs, if pairs are numbered as in Ball-Larus numbering and
/// the number is the index of the word. Functions with more pairs use a hash.
const MAX_WORDS_INDEXED_DIRECTLY: u64 = 1 << 12;
/// Maximum number of counter words of a unit in which the number of a pair may be the index of its word: instructions can only address data
/// within 2 GiB.
const MAX_WORDS_PER_UNIT: u64 = 1 << 25;

pub fn declare_context(module: Module) -> ContextWords {
    let words = module.add_thread_local(CONTEXT_SYMBOL);
    emit::define_thread_local(module, CONTEXT_SYMBOL, CONTEXT_BYTES, CONTEXT_ADDRESS_SYMBOL, CONTEXT_SYMBOL);
    ContextWords(words)
}

pub struct SegmentPlan {
    /// What the unit's map says about these counters.
    pub words: SegmentWords,
    /// Number of bits of a path number in the path register. The context is in the bits above.
    bits: u32,
    places: CounterWordMapping,
    /// Edges on which the first path of a call ends, if such paths are counted.
    counted: BTreeSet<Edge>,
    /// Calls that belong to segments, by the edge on which the path before the call ends.
    calls: BTreeMap<Edge, Vec<ContextPassingCall>>,
    /// For each callee, the table from the caller's paths to the contexts that they hand over.
    transitions: Vec<ContextTransition>,
    /// The tags by which callees recognise contexts meant for them, and the function's number.
    tags: (ContextTags, u32),
}

/// A call that passes a context to its callee.
struct ContextPassingCall {
    call: Value,
    /// The possible callees, each with the index of its transition. At an indirect call, the target is compared with them at run time.
    callees: Vec<(Value, usize)>,
    is_indirect: bool,
    ends_function: bool,
    executions: f64,
}

/// One possible callee of a call that belongs to segments.
#[derive(Clone, Copy)]
pub struct CalleeOnSegments {
    pub call: Value,
    /// The callee's number in the set of segments.
    pub callee: u32,
    pub is_indirect: bool,
    /// True for a tail call. The path ends before such a call.
    pub ends_function: bool,
    /// Estimated number of executions.
    pub executions: f64,
}

/// Emits the code that counts segments, in one version of a function.
#[derive(Clone, Copy)]
pub struct SegmentCode<'a> {
    /// Initial value of the path register; `None` if the function does not get a context.
    pub start: Option<Value>,
    plan: &'a SegmentPlan,
    words: ContextWords,
    version: &'a SegmentVersion,
}

pub struct PlannedFunctionOnSegments<'a> {
    pub module: Module,
    pub source: &'a str,
    pub set: &'a Rc<SegmentSet>,
    /// The function's number in the set of segments.
    pub number: u32,
    pub cfg: &'a FunctionCfg,
    pub graph: &'a Graph,
    /// The function's probe program, which counts all paths, after the passes.
    pub program: &'a ProbeProgram,
    pub frequencies: &'a Frequencies,
    pub identity: Identity,
    pub numbering: SegmentNumbering,
    /// The preferential numbering that the probe program uses, if any.
    pub preferential: Option<ContextNumbering>,
}

impl SegmentPlan {
    /// Plans the counters of a function, whose words start at index `first_word`.
    pub fn new(on: &mut PlannedFunctionOnSegments, first_word: u64) -> SegmentPlan {
        let preferential = on.preferential.take();
        let on = &*on;
        let function = &on.set.functions()[on.number as usize];
        let bits = SegmentWords::bits_for_path(function.paths);
        let rows = (function.contexts.len() as u64 + 1) << bits;
        let interesting: Vec<(u32, u64)> = function.interesting.iter().copied().collect();
        let places = match preferential {
            Some(numbering) => CounterWordMapping::Preferential { numbering, tables: ContextTransitionTables::default() },
            None => CounterWordMapping::of_function(on, (first_word, rows), &interesting),
        };
        let caller = |c: &trodden_unit::SegmentContext| {
            let caller = &on.set.functions()[c.caller as usize];
            CallerPath { unit: caller.unit.clone(), name: caller.name.clone(), context: c.context, path: c.path }
        };
        let words = if function.contexts.is_empty() || !function.counts { 0 } else { places.word_count() };
        let mut plan = SegmentPlan {
            words: SegmentWords {
                first_word,
                words,
                contexts: function.contexts.iter().map(caller).collect(),
                keys: places.encoded_pairs(|(context, path)| SegmentWords::key(function.paths, *context, *path)),
                interesting,
                ..SegmentWords::default()
            },
            bits,
            places,
            counted: BTreeSet::new(),
            calls: BTreeMap::new(),
            transitions: Vec::new(),
            tags: (ContextTags(on.identity), on.number),
        };
        if words > 0 {
            plan.count_first_paths(on);
        }
        plan.plan_context_passing_calls(on, rows);
        plan
    }

    /// Returns true if segments need code on an edge at which paths end.
    pub fn has_code_on_edge(&self, edge: Edge) -> bool {
        self.counted.contains(&edge) || self.calls.contains_key(&edge)
    }

    fn count_first_paths(&mut self, on: &PlannedFunctionOnSegments) {
        let reached = nodes_reached_from_entry(on.program);
        self.counted = match on.set.counts_all_pairs() {
            true => on.graph.edges().filter(|e| ends_path(on.program, *e) && reached.contains(&on.graph.from(*e))).collect(),
            false => self.words.interesting.iter().filter_map(|(_, path)| last_edge_of_path(on.program, *path)).collect(),
        };
    }

    /// Finds the calls that belong to segments. If the function has no call instruction for one, records that.
    fn plan_context_passing_calls(&mut self, on: &PlannedFunctionOnSegments, rows: u64) {
        let mut by_callee: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for (callee, context) in on.set.contexts_with_caller(on.number) {
            by_callee.entry(callee).or_default().insert(context.path);
        }
        let mut placed: IndexMap<(Edge, Value), Vec<(Value, usize)>> = IndexMap::new();
        for (callee, paths) in by_callee {
            let transition = self.transitions.len();
            let sums: BTreeMap<u64, u64> = paths.iter().map(|path| (on.final_register(*path), *path)).collect();
            self.transitions.push(ContextTransition::new((on.set, on.number), callee, &sums, (self.bits, rows)));
            for path in paths {
                let edge = last_edge_of_path(on.program, path);
                let found: Vec<(Edge, Value, Value)> =
                    edge.iter().flat_map(|e| find_calls_of_callee(on, *e, callee).into_iter().map(|(call, f)| (*e, call, f))).collect();
                if found.is_empty() {
                    let callee = &on.set.functions()[callee as usize];
                    self.words.unplaced.push(UnplacedCall { unit: callee.unit.clone(), name: callee.name.clone(), path });
                }
                for (edge, call, function) in found {
                    let callees = placed.entry((edge, call)).or_default();
                    if !callees.contains(&(function, transition)) {
                        callees.push((function, transition));
                    }
                }
            }
        }
        let mut placed: Vec<_> = placed.into_iter().collect();
        placed.sort_by_key(|((edge, call), _)| (*edge, position_in_block(*call)));
        for ((edge, call), callees) in placed {
            let is_indirect = calls::resolve_alias(call.callee()).is_none();
            let ends_function = on.cfg.graph.kind(edge) != EdgeKind::Reach;
            let executions = on.execution_frequency(on.graph.from(edge));
            self.calls.entry(edge).or_default().push(ContextPassingCall { call, callees, is_indirect, ends_function, executions });
        }
    }

    pub fn calls(&self) -> impl Iterator<Item = CalleeOnSegments> {
        self.calls.values().flatten().flat_map(move |at| {
            let ContextPassingCall { call, is_indirect, ends_function, executions, .. } = *at;
            let callees = if is_indirect { at.callees.as_slice() } else { &at.callees[..1] };
            callees.iter().map(move |(_, transition)| {
                let callee = self.transitions[*transition].callee;
                CalleeOnSegments { call, callee, is_indirect, ends_function, executions: executions / callees.len() as f64 }
            })
        })
    }

    /// Emits the code at the entry of a version of the function. Returns what its probes need.
    pub fn emit_version_entry<'a>(
        &'a self,
        module: Module,
        version: &'a SegmentVersion,
        words: ContextWords,
        location: Option<DebugLocation>,
    ) -> SegmentCode<'a> {
        let code = SegmentCode { start: None, plan: self, words, version };
        let takes_context = version.context_source != ContextSource::None;
        if !takes_context || self.counted.is_empty() && self.words.contexts.is_empty() {
            return code;
        }
        let builder = Builder::before(module, version.code.entry().after_allocas(), location);
        let context = match version.context_source {
            ContextSource::Argument => version.code.last_parameter(),
            _ => words.emit_load_and_clear(&builder, self.tags.0.of(self.tags.1), self.words.contexts.len() as u64),
        };
        SegmentCode { start: Some(self.places.emit_initial_key(&builder, context, self.bits, version.code)), ..code }
    }
}

impl SegmentCode<'_> {
    /// Emits the code for an edge on which a path ends or reaches calls. `known` is the value of the path register if it is constant, and
    /// `base` is the address of the unit's counters. Returns the address of the word to increment; `None` if the path is not counted.
    pub fn emit_path_end(
        &self,
        builder: &Builder,
        (edge, location): (Edge, Option<DebugLocation>),
        (known, number): (Option<i64>, Value),
        base: Value,
    ) -> Option<Value> {
        let places = &self.plan.places;
        for call in self.plan.calls.get(&edge).into_iter().flatten() {
            let key = known.map(|number| (number as u64 & places.key_mask()) as i64);
            self.pass_context(builder, location, call, (key, places.emit_key(builder, number)));
        }
        // Only paths that start at function entry are counted, and these have no constant number.
        if known.is_some() || self.version.context_source == ContextSource::None || !self.plan.counted.contains(&edge) {
            return None;
        }
        let i64 = builder.module.i64();
        let first = builder.offset(i64, base, builder.constant(self.plan.words.first_word));
        let word = places.emit_word(builder, edge, number, self.version.code);
        Some(builder.offset(i64, first, word))
    }

    fn pass_context(
        &self,
        builder: &Builder,
        location: Option<DebugLocation>,
        at: &ContextPassingCall,
        (known, number): (Option<i64>, Value),
    ) {
        let context = |transition: usize| {
            let transition = &self.plan.transitions[transition];
            match known {
                Some(number) => builder.constant(transition.constant_context(number as u64).into()),
                None => transition.emit_lookup(builder, self.version.code, number),
            }
        };
        let (none, call) = (builder.constant(0), self.version.call(at.call));
        let callees = if at.is_indirect { at.callees.as_slice() } else { &at.callees[..1] };
        let contexts: Vec<(Value, usize, Value)> = callees.iter().map(|(f, transition)| (*f, *transition, context(*transition))).collect();
        let by_argument = |transition: usize, context: Value| {
            context != none && self.version.record_context(at.call, self.plan.transitions[transition].callee, context)
        };
        let by_word: Vec<_> = contexts.into_iter().filter(|(_, transition, context)| !by_argument(*transition, *context)).collect();
        if by_word.iter().all(|(.., context)| *context == none) {
            return;
        }
        let before = Builder::before(builder.module, call, location);
        let mark = |transition: usize, context: Value| {
            let tag = self.plan.tags.0.of(self.plan.transitions[transition].callee);
            before.xor(context, before.constant(tag))
        };
        let passed = match (at.is_indirect, by_word.first()) {
            (false, Some((_, transition, context))) => mark(*transition, *context),
            _ => by_word.iter().fold(none, |passed, (function, transition, context)| {
                before.select(before.equal(call.callee(), *function), mark(*transition, *context), passed)
            }),
        };
        self.words.emit_store_for_callee(&before, call, passed);
    }
}

impl CounterWordMapping {
    /// Chooses how a function's pairs of context and path are mapped to words. An array with a word for every pair would have `rows` words.
    fn of_function(on: &PlannedFunctionOnSegments, (first_word, rows): (u64, u64), interesting: &[(u32, u64)]) -> CounterWordMapping {
        let function = &on.set.functions()[on.number as usize];
        let fits = |max: u64| rows <= max && first_word.saturating_add(rows) <= MAX_WORDS_PER_UNIT;
        let max_rows = match on.numbering {
            // In this numbering, the value of the path register is not a path number, so it cannot be the index of a word.
            SegmentNumbering::PreciseSelective => 0,
            _ if on.set.counts_all_pairs() => MAX_WORDS_TO_COUNT_EVERY_PAIR,
            SegmentNumbering::BallLarus => MAX_WORDS_INDEXED_DIRECTLY,
            SegmentNumbering::Minimal | SegmentNumbering::Preferential => interesting.len() as u64 + 1,
        };
        if fits(max_rows) {
            return CounterWordMapping::Keys { words: rows, pairs: BTreeMap::new() };
        }
        let key = |pair: &(u32, u64)| {
            let key = SegmentWords::key(function.paths, pair.0, on.final_register(pair.1));
            (key, *pair, last_edge_of_path(on.program, pair.1))
        };
        let keys: Vec<(u64, (u32, u64), Option<Edge>)> = interesting.iter().map(key).collect();
        let pairs = match on.numbering {
            SegmentNumbering::PreciseSelective => keys.iter().map(|(key, pair, _)| (*key, *pair)).collect(),
            _ => BTreeMap::new(),
        };
        // All uninteresting pairs share the word after the keys.
        let words = rows + u64::from(!pairs.is_empty());
        CounterWordMapping::with_consecutive_words(&keys).unwrap_or(CounterWordMapping::Keys { words, pairs })
    }
}

impl PlannedFunctionOnSegments<'_> {
    /// Returns the value of the path register at the end of a path: the path's number, or the sum of its edge labels, which differs from
    /// that of all other paths.
    fn final_register(&self, path: u64) -> u64 {
        let paths = self.program.paths();
        match self.program.cells() {
            CounterCells::Labels { part, .. } => paths.numbering.path(&paths.dag, path).map_or(path, |edges| part.id(&edges) as u64),
            _ => path,
        }
    }

    fn execution_frequency(&self, node: Node) -> f64 {
        let edges = if node == self.graph.entry() { self.graph.out(node) } else { self.graph.incoming(node) };
        edges.iter().filter(|e| self.cfg.graph.kind(**e) != EdgeKind::Reach).map(|e| self.frequencies.edges()[e.index()]).sum()
    }

    /// Returns the estimated number of calls to this function.
    pub fn estimated_call_count(&self) -> f64 {
        self.execution_frequency(self.graph.entry())
    }
}

fn ends_path(program: &ProbeProgram, edge: Edge) -> bool {
    program.operations(edge).iter().any(|o| matches!(o, Operation::Count { .. }))
}

/// Returns the edge on which a path is counted; `None` if it is never counted.
fn last_edge_of_path(program: &ProbeProgram, path: u64) -> Option<Edge> {
    let paths = program.paths();
    let edges = paths.numbering.path(&paths.dag, path)?;
    let real = edges.iter().rev().filter_map(|id| match paths.dag.edge(*id).origin {
        Origin::Real(edge) | Origin::Leave(edge) => Some(edge),
        Origin::Enter(_) | Origin::Stop(_) => None,
    });
    real.into_iter().find(|edge| ends_path(program, *edge))
}

/// Returns the nodes on paths that start at function entry.
fn nodes_reached_from_entry(program: &ProbeProgram) -> BTreeSet<Node> {
    let dag = &program.paths().dag;
    let mut reached = BTreeSet::from([dag.entry()]);
    for node in dag.order() {
        if reached.contains(node) {
            let real = dag.out(*node).iter().map(|id| dag.edge(*id)).filter(|e| matches!(e.origin, Origin::Real(_)));
            reached.extend(real.map(|e| e.to));
        }
    }
    reached
}

/// Returns the calls that may call function `number` of the set after a path that ends on the given edge. Each call comes with that
/// function as a value of this module.
fn find_calls_of_callee(on: &PlannedFunctionOnSegments, edge: Edge, number: u32) -> Vec<(Value, Value)> {
    let callee = &on.set.functions()[number as usize];
    let is_elsewhere = callee.local && callee.unit != on.source;
    let at = find_calls_after_path(on, edge);
    let direct: Vec<(Value, Value)> = at
        .iter()
        .filter_map(|call| Some((*call, calls::resolve_alias(call.callee())?)))
        .filter(|(_, function)| !is_elsewhere && on.set.is_called(number, &function.name()))
        .collect();
    let is_indirect = |call: &Value| {
        let called = call.callee();
        calls::resolve_alias(called).is_none() && !called.is_assembly()
    };
    let indirect: Vec<Value> = at.into_iter().filter(is_indirect).collect();
    if indirect.is_empty() {
        return direct;
    }
    let function = match is_elsewhere {
        true => declare_local_function(on.module, &callee.unit, &callee.name),
        false => on.module.function_without_parameters(&callee.name),
    };
    // A block may contain both direct and indirect calls to the function.
    direct.into_iter().chain(indirect.into_iter().map(|call| (call, function))).collect()
}

/// Returns the calls that directly follow a path that ends on the given edge.
fn find_calls_after_path(on: &PlannedFunctionOnSegments, edge: Edge) -> Vec<Value> {
    let Some(block) = on.cfg.block(on.graph.from(edge)) else { return Vec::new() };
    let ending = find_function_ending_instruction(block).filter(|call| call.is_call());
    match (on.cfg.graph.kind(edge), &on.cfg.sites[edge.index()]) {
        (EdgeKind::Reach, EdgeInsertionSite::Before(first)) => {
            block.instructions().skip_while(|i| i != first).filter(|i| i.is_call() && Some(*i) != ending).collect()
        }
        (EdgeKind::TailCall | EdgeKind::NoReturn, _) => ending.into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the symbol by which other units refer to a local function of a unit.
fn exported_local_name(unit: &str, name: &str) -> String {
    format!("__trodden_local_{}", Identity::from_content([unit.as_bytes(), b"\0", name.as_bytes()].concat().as_slice()))
}

/// Declares a local function of another unit. If that unit does not export it, its address is null.
fn declare_local_function(module: Module, unit: &str, name: &str) -> Value {
    let function = module.function_without_parameters(&exported_local_name(unit, name));
    function.set_linkage(LLVMLinkage::LLVMExternalWeakLinkage);
    function.set_visibility(LLVMVisibility::LLVMHiddenVisibility);
    function
}

/// Exports a local function of this unit under another name, so that other units can compare function pointers with its address.
pub fn export_local_name(module: Module, unit: &str, function: Value) {
    let alias = module.add_alias(&exported_local_name(unit, &function.name()), function);
    alias.set_linkage(LLVMLinkage::LLVMWeakAnyLinkage);
    alias.set_visibility(LLVMVisibility::LLVMHiddenVisibility);
}

fn position_in_block(instruction: Value) -> usize {
    instruction.block().instructions().position(|i| i == instruction).unwrap_or(0)
}
