//! Replaces LLVM's counters with placeholders, recorded positions in the code, so that LLVM's edge profile or clang's coverage can be
//! derived from a path profile. A unit compiled with LLVM's early instrumentation (`-fprofile-generate`, `-fcoverage-mapping`,
//! `-Cinstrument-coverage`) has `atomicrmw add` in its blocks; the optimiser neither merges atomic updates nor moves them across branches.
//! The updates are removed, and the unit's map records their positions ([`trodden_unit::edge_profile`]): paths tell how often each block
//! was executed, which is the value of its counter. Updates that paths do not determine are counted in words of the unit: those with a
//! computed amount (`select`) or a computed address (merged blocks), and those between two calls of a block that may not return. Bitcode
//! stored for variants retains the updates, and a named metadata node that marks them.
// Length: a single walk finds, removes and describes all kinds of counters.

mod bitmaps;
mod fall_through;
pub mod llvm_profile;

use crate::additions::add_to_word_inline;
use crate::debug::SourcePositionCollector;
use crate::describe::{EdgeInsertionSite, FunctionCfg, calls_that_may_not_return, find_function_ending_instruction};
use crate::llvm::{Block, Builder, Module, Value};
use crate::no_return::{NoReturnAnalysis, creates_process};
use crate::values;
use indexmap::{IndexMap, IndexSet};
use llvm_profile::{CoverageTables, ProfileTables, find_constant_element_index};
use llvm_sys::LLVMAtomicRMWBinOp::{LLVMAtomicRMWBinOpAdd, LLVMAtomicRMWBinOpOr};
use llvm_sys::LLVMOpcode;
use std::collections::BTreeMap;
use trodden_flow::{Edge, Node};
use trodden_unit::{
    CounterPlaceholder, EdgeCounter, EdgeProfile, ForkCall, PlaceholderPosition, ProfiledFunction, ProfiledValueKind, ReachedCall,
    UnitCountersForLlvm, ValueCounters,
};

const COUNTER_BYTES: i64 = 8;
/// Named metadata that marks modules from which trodden may remove the counters.
const PLACEHOLDER_METADATA: &str = "trodden.edge.counters";

/// Reasons why LLVM's counters cannot be replaced by placeholders.
#[derive(Debug, thiserror::Error)]
pub enum PlaceholderError {
    #[error("cannot read LLVM's profile table `{0}`. Use `trodden build --pgo` or `--coverage` without profiling options of the compiler")]
    Table(String),
    #[error("the source file was compiled with {found} instead of {expected}. Compile it again with `trodden build {option}`")]
    Kind {
        found: &'static str,
        expected: &'static str,
        /// The option of `trodden build` that makes the compiler insert the expected counters.
        option: &'static str,
    },
    #[error(
        "function `{function}` uses one of LLVM's counters in an unsupported way (`{instruction}`). Build this file without `--pgo` and \
         `--coverage`, and please report the bug"
    )]
    Use { function: String, instruction: String },
}

/// The kind of LLVM counters that a build removes from its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// LLVM's edge counters, for profile-guided optimisation.
    Edges,
    /// The front end's counters of source regions. The mapping from counters to regions stays in the program.
    Coverage,
    /// Counters of any kind, which are removed without being recorded.
    Discarded,
}

#[derive(Clone, Copy, Debug)]
pub struct RemovalOptions {
    pub kind: CounterKind,
    /// True if counters are incremented atomically, because threads share them.
    pub shared: bool,
}

/// A module's counters, which have been removed, and the places at which they were updated.
pub struct Placeholders {
    module: Module,
    profile: EdgeProfile,
    fixed: IndexMap<Value, Vec<ConstantCounterUpdate>>,
    computed: IndexMap<Value, Vec<Value>>,
    notes: IndexMap<Value, Vec<ValueRecordingCall>>,
    own: IndexMap<EdgeCounter, u64>,
    shared: bool,
    /// Index of the first of the unit's counters for bits of bitmaps that are computed at run time.
    first_bit: u64,
    /// A dummy instruction that stands for the address of the thread's counters in the current function.
    base: Option<Value>,
}

/// A removed update that added a constant amount. Its position is before the instruction that followed it.
struct ConstantCounterUpdate {
    before: Value,
    counter: EdgeCounter,
    amount: i64,
}

/// A call by which LLVM records a value, and the index of the first of the unit's counters for its site; `None` if the site depends on the
/// call's arguments.
struct ValueRecordingCall {
    call: Value,
    kind: ProfiledValueKind,
    first: Option<u64>,
}

/// Marks a module as one whose counters will become placeholders.
pub fn mark_as_placeholders(module: Module) {
    if !has_placeholders(module) {
        module.add_named_metadata(PLACEHOLDER_METADATA, module.context().metadata_node(&[]));
    }
}

pub fn has_placeholders(module: Module) -> bool {
    module.has_named_metadata(PLACEHOLDER_METADATA)
}

impl Placeholders {
    /// Removes LLVM's counters from a module. Updates whose number of executions does not follow from paths get counters of the unit, from
    /// index `next` on.
    pub fn extract_llvm_counters(
        module: Module,
        counters: Value,
        next: &mut u64,
        options: RemovalOptions,
    ) -> Result<Placeholders, PlaceholderError> {
        let tables = llvm_profile::read(module)?;
        check_counter_kind(&tables, options.kind)?;
        let notes = llvm_profile::find_value_recording_calls(module);
        let functions = tables.functions.iter().map(|t| t.function).collect();
        let profile = EdgeProfile { version: tables.version, names: tables.names, functions, ..EdgeProfile::default() };
        let mut placeholders = Placeholders {
            module,
            profile,
            fixed: IndexMap::new(),
            computed: IndexMap::new(),
            notes: IndexMap::new(),
            own: IndexMap::new(),
            shared: options.shared,
            first_bit: 0,
            base: None,
        };
        let replacements = placeholders.assign_value_site_counters(notes, &tables.functions, next);
        let mapping = if options.kind == CounterKind::Coverage { CoverageTables::Kept } else { CoverageTables::Removed };
        llvm_profile::remove_tables(module, &replacements, mapping);
        let numbers: IndexMap<Value, u32> = tables.functions.iter().enumerate().map(|(i, t)| (t.counters, i as u32)).collect();
        let bits = placeholders.remove_bitmaps(&tables.functions, counters, next)?;
        let updates = tables.functions.iter().map(|t| find_counter_updates(t.counters)).collect::<Result<Vec<_>, _>>()?;
        let needs_duplicate: Vec<bool> = updates.iter().map(|u| u.iter().any(|u| adds_computed_amount(*u))).collect();
        placeholders.separate_updates(&updates.into_iter().flatten().collect(), &numbers, &bits);
        for (number, table) in tables.functions.iter().enumerate() {
            if needs_duplicate[number] {
                let duplicate = placeholders.assign_unit_counters(counters, number as u32, next);
                // SAFETY: only handles to instructions and globals are used after this, not to constants.
                unsafe { table.counters.replace_constant(duplicate) };
            }
            // SAFETY: the loop visits each table once, and `numbers`, which has handles to the counters, is not used after it.
            unsafe { llvm_profile::remove_global(table.counters) };
        }
        Ok(placeholders)
    }

    /// Assigns counters of the unit to each site that records a value. If the optimiser merged calls that differ only in their site, the
    /// code computes the site: then all sites of the functions involved get counters, in order, and the index of the first one replaces the
    /// address of the function's table.
    fn assign_value_site_counters(
        &mut self,
        notes: Vec<Value>,
        tables: &[llvm_profile::CounterTable],
        next: &mut u64,
    ) -> Vec<(Value, u64)> {
        let numbers: IndexMap<Value, u32> = tables.iter().enumerate().map(|(i, t)| (t.data, i as u32)).collect();
        let mut known: IndexMap<(u32, ProfiledValueKind, u16), u64> = IndexMap::new();
        let mut whole: BTreeMap<u32, u64> = BTreeMap::new();
        for call in notes {
            let kind = values::recorded_value_kind(call);
            let (table, number) = (call.operand(1), call.operand(2).as_integer());
            let first = if let (Some(&function), Some(number)) = (numbers.get(&table), number) {
                let Some(site) = values::value_site_within_kind(kind, self.profile.functions[function as usize].value_sites, number) else {
                    // The site belongs to a virtual table.
                    // SAFETY: each call occurs in the list once, and no handle to this one is kept.
                    unsafe { call.erase() };
                    continue;
                };
                Some(*known.entry((function, kind, site)).or_insert_with(|| self.assign_value_counters(function, kind, site, next)))
            } else {
                for function in values::find_globals_pointed_to(table).into_iter().filter_map(|t| numbers.get(&t).copied()) {
                    whole.entry(function).or_insert_with(|| self.assign_all_value_counters(function, next));
                }
                None
            };
            self.notes.entry(call.block().function()).or_default().push(ValueRecordingCall { call, kind, first });
        }
        whole.into_iter().map(|(function, first)| (tables[function as usize].data, first)).collect()
    }

    fn assign_value_counters(&mut self, function: u32, kind: ProfiledValueKind, site: u16, next: &mut u64) -> u64 {
        let first = *next;
        self.profile.values.push(ValueCounters { function, kind, site, first });
        *next += u64::from(kind.counters());
        first
    }

    /// Assigns counters to all sites of a function. Each site gets as many as the kind of site that needs the most.
    fn assign_all_value_counters(&mut self, function: u32, next: &mut u64) -> u64 {
        let first = *next;
        let [targets, sizes, _] = self.profile.functions[function as usize].value_sites;
        for (kind, count) in [(ProfiledValueKind::Target, targets), (ProfiledValueKind::Size, sizes)] {
            for site in 0..count {
                self.profile.values.push(ValueCounters { function, kind, site, first: *next });
                *next += u64::from(ProfiledValueKind::Target.counters());
            }
        }
        first
    }

    /// Removes the bitmaps by which clang records the outcomes of decisions. Returns the updates that set constant bits, with the counters
    /// for these bits; [`Placeholders::separate_updates`] removes the updates. The counters for computed bits are contiguous, so that a
    /// bit's address determines its counter.
    fn remove_bitmaps(
        &mut self,
        tables: &[llvm_profile::CounterTable],
        counters: Value,
        next: &mut u64,
    ) -> Result<IndexMap<Value, Vec<EdgeCounter>>, PlaceholderError> {
        let (mut known, first, mut bytes) = (IndexMap::new(), *next, 0);
        for (function, table) in (0..).zip(tables) {
            let (Some(bitmap), ProfiledFunction { counters: before, bits, .. }) = (table.bitmap, table.function) else { continue };
            let uses = bitmaps::find_bitmap_uses(bitmap)?;
            uses.fold_bitmap_checks(self.module);
            let mut computed = false;
            for update in uses.updates {
                match bitmaps::constant_bits(update).filter(|(of, _)| *of == bitmap) {
                    Some((_, bits)) => {
                        known.insert(update, bits.into_iter().map(|bit| EdgeCounter { function, index: before + bit }).collect());
                    }
                    None => {
                        computed = true;
                        let all = self.computed.entry(update.block().function()).or_default();
                        // One update may refer to several bitmaps.
                        if !all.contains(&update) {
                            all.push(update);
                        }
                    }
                }
            }
            if computed {
                let counter = EdgeCounter { function, index: before };
                self.profile.own.push(UnitCountersForLlvm { counter, first: first + 8 * bytes, count: bits });
                let moved = self.module.i8().constant_address(counters, self.module.constant(bytes as i64));
                // SAFETY: only handles to instructions and globals are used after this. Addresses are read from the instructions' operands
                // again.
                unsafe { bitmap.replace_constant(moved) };
                bytes += u64::from(bits / 8);
            }
            // SAFETY: the loop visits each bitmap once. The remaining updates, of constant bits, are erased later without looking at their
            // addresses.
            unsafe { llvm_profile::remove_global(bitmap) };
        }
        *next += 8 * bytes;
        self.first_bit = first;
        Ok(known)
    }

    /// Separates updates whose amount or address is computed, which stay for now, from fixed ones, which are deleted and become
    /// placeholders. Updates that set constant bits are fixed.
    fn separate_updates(&mut self, updates: &IndexSet<Value>, numbers: &IndexMap<Value, u32>, bits: &IndexMap<Value, Vec<EdgeCounter>>) {
        let (computed, erased): (Vec<Value>, Vec<Value>) = updates.iter().partition(|u| adds_computed_amount(**u));
        computed.into_iter().for_each(|u| self.computed.entry(u.block().function()).or_default().push(u));
        let erased: Vec<Value> = erased.into_iter().chain(bits.keys().copied()).collect();
        let is_erased = |i: &Value| bits.contains_key(i) || (updates.contains(i) && !adds_computed_amount(*i));
        let counter = |update: Value| {
            let (array, index) = find_constant_element_index(update.operand(0), COUNTER_BYTES)?;
            Some(EdgeCounter { function: *numbers.get(&array)?, index })
        };
        for &update in &erased {
            let (counters, amount) = match bits.get(&update) {
                Some(bits) => (bits.clone(), 1),
                None => (counter(update).into_iter().collect(), update.operand(1).as_integer().unwrap_or(0)),
            };
            let before = find_next_instruction(update, |i| !is_erased(i));
            let placeholders =
                counters.into_iter().filter(|_| amount != 0).map(|counter| ConstantCounterUpdate { before, counter, amount });
            self.fixed.entry(update.block().function()).or_default().extend(placeholders);
        }
        let functions: IndexSet<Value> = erased.iter().map(|update| update.block().function()).collect();
        for update in erased {
            // SAFETY: no placeholder is positioned before a deleted instruction (`find_next_instruction`), and `computed` has only
            // instructions that stay.
            unsafe { update.erase() };
        }
        functions.into_iter().for_each(fall_through::restore_fall_through);
    }

    /// Assigns a counter of the unit to each LLVM counter of a function. Returns the address of the first one.
    fn assign_unit_counters(&mut self, counters: Value, function: u32, next: &mut u64) -> Value {
        let first = *next;
        let count = self.profile.functions[function as usize].counters;
        *next += u64::from(count);
        self.profile.own.push(UnitCountersForLlvm { counter: EdgeCounter { function, index: 0 }, first, count });
        self.own.extend((0..count).map(|index| (EdgeCounter { function, index }, first + u64::from(index))));
        self.module.i64().constant_address(counters, self.module.constant(first as i64))
    }

    /// Emits code that counts a function's computed updates and recorded values. The address of the thread's counters is not known yet;
    /// [`Placeholders::resolve_counter_base`] supplies it.
    pub fn emit_computed_counts(&mut self, function: Value, counters: Value) {
        let (updates, notes) =
            (self.computed.swap_remove(&function).unwrap_or_default(), self.notes.swap_remove(&function).unwrap_or_default());
        if updates.is_empty() && notes.is_empty() {
            return;
        }
        let all: IndexSet<Value> = updates.iter().copied().chain(notes.iter().map(|n| n.call)).collect();
        for placeholder in self.fixed.get_mut(&function).into_iter().flatten().filter(|m| all.contains(&m.before)) {
            placeholder.before = find_next_instruction(placeholder.before, |i| !all.contains(i));
        }
        let base = self.base_placeholder(function);
        for update in updates {
            let (address, amount) = (update.operand(0), update.operand(1));
            let builder = Builder::before(self.module, update, update.location());
            if update.atomic_operation() == Some(LLVMAtomicRMWBinOpOr) {
                let word = bitmaps::emit_bit_counter_index(&builder, update, counters, self.first_bit);
                self.add(&builder, builder.offset(self.module.i64(), base, word), self.module.constant(1));
                // SAFETY: the list was removed from `computed` and has each update once, and no placeholder is positioned before one.
                unsafe { update.erase() };
                continue;
            }
            let offset = builder.subtract(builder.pointer_to_int(address), builder.pointer_to_int(counters));
            self.add(&builder, builder.offset(self.module.i8(), base, offset), amount);
            // SAFETY: the list was removed from `computed` and has each update once, and no placeholder is positioned before one.
            unsafe { update.erase() };
        }
        for ValueRecordingCall { call, kind, first } in notes {
            let builder = Builder::before(self.module, call, call.location());
            let first = first.map_or_else(|| values::emit_first_counter_index(&builder, call), |f| self.module.constant(f as i64));
            let counters = builder.offset(self.module.i64(), base, first);
            for (index, amount) in values::emit_value_increments(&builder, kind, call.operand(0)) {
                self.add(&builder, builder.offset(self.module.i64(), counters, index), amount);
            }
            // SAFETY: the list was removed from `notes` and has each call once, and no placeholder is positioned before one.
            unsafe { call.erase() };
        }
    }

    /// Records a function's placeholders once its graph is known. If paths do not determine how often one was executed, emits code that
    /// counts it.
    pub fn record_placeholders(&mut self, function: Value, cfg: &FunctionCfg, no_return: &NoReturnAnalysis, number: usize, next: &mut u64) {
        let Some(mut all) = self.fixed.swap_remove(&function) else { return };
        let nodes: IndexMap<Block, Node> = cfg.nodes.iter().enumerate().filter_map(|(i, b)| Some(((*b)?, Node(i as u32)))).collect();
        let order: IndexMap<Value, usize> = function.blocks().flat_map(|b| b.instructions().collect::<Vec<_>>()).zip(0..).collect();
        all.sort_by_key(|m| (order[&m.before], m.counter));
        for (edge, site) in cfg.sites.iter().enumerate() {
            if let EdgeInsertionSite::BeforeThenHead(call) = site
                && creates_process(*call)
            {
                self.profile.forks.push(ForkCall { function: number as u32, edge: Edge(edge as u32) });
            }
        }
        for ConstantCounterUpdate { before, counter, amount } in all {
            match position_among_calls(before, no_return) {
                Some(place) => {
                    let placeholder = CounterPlaceholder { function: number as u32, block: nodes[&before.block()], place, counter, amount };
                    self.profile.placeholders.push(placeholder);
                }
                None => self.emit_unit_count(function, before, counter, amount, next),
            }
        }
    }

    /// Records a function's calls that may not return. If a second such call follows in the same block, and any other line is involved, the
    /// returns of the first call are counted as well.
    pub fn record_calls(
        &mut self,
        function: Value,
        cfg: &FunctionCfg,
        number: usize,
        positions: &mut SourcePositionCollector,
        next: &mut u64,
    ) {
        for (block, calls) in cfg.reached.iter().enumerate() {
            let known = &cfg.blocks[block].positions;
            let lines = |at: std::ops::Range<u32>| known[at.start as usize..at.end as usize].iter().map(|p| (p.scope, p.file, p.line));
            for (at, &(call, up_to_call)) in calls.iter().enumerate() {
                let position = positions.position_of(call);
                let mut counter = None;
                if let Some(&(following, up_to_next)) = calls.get(at + 1) {
                    let earlier: IndexSet<_> = lines(0..up_to_call).collect();
                    let is_on_line = positions.position_of(following).map(|p| (p.scope, p.line)) == position.map(|p| (p.scope, p.line));
                    if is_on_line && lines(up_to_call..up_to_next).all(|line| earlier.contains(&line)) {
                        continue;
                    }
                    counter = Some(self.emit_return_count(function, call, next));
                }
                let (function, block) = (number as u32, Node(block as u32));
                self.profile.reached.push(ReachedCall { function, block, up_to_call, position, counter });
            }
        }
    }

    fn emit_return_count(&mut self, function: Value, call: Value, next: &mut u64) -> u64 {
        let counter = *next;
        *next += 1;
        let before = call.next().expect("another call follows");
        let base = self.base_placeholder(function);
        let builder = Builder::before(self.module, before, before.location());
        let address = builder.offset(self.module.i64(), base, self.module.constant(counter as i64));
        self.add(&builder, address, self.module.constant(1));
        counter
    }

    fn emit_unit_count(&mut self, function: Value, before: Value, counter: EdgeCounter, amount: i64, next: &mut u64) {
        let index = *self.own.entry(counter).or_insert_with(|| {
            self.profile.own.push(UnitCountersForLlvm { counter, first: *next, count: 1 });
            *next += 1;
            *next - 1
        });
        let base = self.base_placeholder(function);
        let builder = Builder::before(self.module, before, before.location());
        let address = builder.offset(self.module.i64(), base, self.module.constant(index as i64));
        self.add(&builder, address, self.module.constant(amount));
    }

    fn add(&self, builder: &Builder, address: Value, amount: Value) {
        add_to_word_inline(builder, address, amount, self.shared);
    }

    /// Returns the dummy instruction that stands for the address of the thread's counters; [`Placeholders::resolve_counter_base`] replaces
    /// it.
    fn base_placeholder(&mut self, function: Value) -> Value {
        let module = self.module;
        *self.base.get_or_insert_with(|| {
            let builder = Builder::before(module, function.entry().after_allocas(), None);
            let pointer = module.pointer();
            builder.freeze(pointer.poison())
        })
    }

    /// Replaces the dummy instruction in the current function with the address of the thread's counters.
    pub fn resolve_counter_base(&mut self, base: Value) {
        if let Some(placeholder) = self.base.take() {
            placeholder.replace_uses(base);
            // SAFETY: `base` held the only handle to the dummy instruction, and nothing uses its result any more.
            unsafe { placeholder.erase() };
        }
    }

    /// Deletes the remaining updates, in functions that were not instrumented. Returns the recorded profile.
    pub fn finish_edge_profile(self) -> EdgeProfile {
        let (computed, notes) = (self.computed.into_values().flatten(), self.notes.into_values().flatten());
        for instruction in computed.chain(notes.map(|note| note.call)) {
            // SAFETY: `self` is consumed, and nothing else keeps handles to these instructions.
            unsafe { instruction.erase() };
        }
        self.profile
    }
}

/// Checks that a unit has the expected kind of LLVM counters. A unit without functions has no counters and always passes.
fn check_counter_kind(tables: &ProfileTables, expected: CounterKind) -> Result<(), PlaceholderError> {
    const EDGE_COUNTERS_FLAG: u64 = 1 << 56;
    let names = |kind| match kind {
        CounterKind::Coverage => ("coverage counters", "--coverage"),
        CounterKind::Edges | CounterKind::Discarded => ("edge counters", "--pgo"),
    };
    let found = if tables.version & EDGE_COUNTERS_FLAG == 0 { CounterKind::Coverage } else { CounterKind::Edges };
    if tables.functions.is_empty() || expected == found || expected == CounterKind::Discarded {
        return Ok(());
    }
    Err(PlaceholderError::Kind { found: names(found).0, expected: names(expected).0, option: names(expected).1 })
}

/// Returns true if the amount or the address of an update is computed at run time.
fn adds_computed_amount(update: Value) -> bool {
    let amount = update.operand(1).as_integer();
    amount.is_none() || (amount != Some(0) && find_constant_element_index(update.operand(0), COUNTER_BYTES).is_none())
}

/// Returns the first instruction after `instruction` for which `expected` holds. It must hold for terminators.
fn find_next_instruction(instruction: Value, expected: impl Fn(&Value) -> bool) -> Value {
    std::iter::successors(instruction.next(), |i| i.next()).find(expected).expect("a block has a terminator")
}

/// Returns where the placeholder before instruction `before` lies among the block's calls that may not return; `None` if paths do not tell
/// whether it was executed.
fn position_among_calls(before: Value, no_return: &NoReturnAnalysis) -> Option<PlaceholderPosition> {
    let block = before.block();
    let calls = calls_that_may_not_return(block, no_return);
    let passed: IndexSet<Value> = block.instructions().take_while(|i| *i != before).collect();
    let earlier = calls.iter().filter(|c| passed.contains(*c)).count();
    // A path that ends with a tail call or a call that ends the function ends before the call, so it does not tell whether the call
    // returned.
    let ended = find_function_ending_instruction(block).is_some_and(|e| passed.contains(&e) && calls.contains(&e));
    match (earlier, calls.len() - earlier) {
        (0, _) => Some(PlaceholderPosition::Entered),
        (_, 0) if !ended => Some(PlaceholderPosition::Left),
        _ => None,
    }
}

/// Returns all updates of an array of LLVM counters, following its address through other instructions.
fn find_counter_updates(counters: Value) -> Result<IndexSet<Value>, PlaceholderError> {
    let (mut updates, mut seen, mut stack) = (IndexSet::new(), IndexSet::from([counters]), vec![counters]);
    while let Some(value) = stack.pop() {
        for user in value.users() {
            match is_counter_update(user, value) {
                true => _ = updates.insert(user),
                false if passes_on_address(user) => stack.extend(seen.insert(user).then_some(user)),
                false => return Err(unsupported_use_error(user)),
            }
        }
    }
    Ok(updates)
}

/// Returns true if an instruction updates the counter at `address` without using the old value.
fn is_counter_update(user: Value, address: Value) -> bool {
    if !user.is(LLVMOpcode::LLVMAtomicRMW) || user.operand(0) != address || user.users().next().is_some() {
        return false;
    }
    match user.atomic_operation() {
        Some(LLVMAtomicRMWBinOpAdd) => true,
        // The optimiser turns an addition of zero into this.
        Some(LLVMAtomicRMWBinOpOr) => user.operand(1).as_integer() == Some(0),
        _ => false,
    }
}

/// Returns true if the user of an address computes another address from it, or passes it on through a constant table.
pub fn passes_on_address(user: Value) -> bool {
    if !user.is_instruction() {
        return true;
    }
    let makes_pointer = user.kind().is_pointer();
    match user.opcode() {
        LLVMOpcode::LLVMPHI | LLVMOpcode::LLVMSelect | LLVMOpcode::LLVMGetElementPtr | LLVMOpcode::LLVMFreeze => true,
        LLVMOpcode::LLVMLoad => makes_pointer,
        LLVMOpcode::LLVMCall => makes_pointer && user.callee().name().starts_with("llvm.load.relative"),
        _ => false,
    }
}

pub fn unsupported_use_error(user: Value) -> PlaceholderError {
    let instruction = user.printed().trim().to_owned();
    PlaceholderError::Use { function: user.block().function().name(), instruction }
}
