//! Tables from the paths of a caller to the contexts of a callee, which the caller reads before the call.
//!
//! Small tables are indexed by path number, others use a perfect hash. All versions of a function share its tables.

use crate::interesting::add_constant_table;
use crate::llvm::{Builder, Type, Value};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use trodden_flow::numbering::PerfectHash;
use trodden_unit::SegmentSet;

/// Maximum number of entries (of 1 to 8 bytes) of a table that is indexed by path number. With 2^8 or 2^4, three programs execute 0.1 to
/// 2.9 % more instructions (docs/benchmarks/constants.md).
const MAX_INDEXED_ENTRIES: u64 = 1 << 12;

/// The mapping from a caller's paths to a callee's contexts.
pub struct ContextTransition {
    /// The callee's number in the set of segments.
    pub callee: u32,
    /// Mask that extracts the path from the path register, if the caller's own context does not matter; `None` if it does.
    mask: Option<u64>,
    contexts: BTreeMap<u64, u32>,
    /// All keys of the table are below this number.
    bound: u64,
    /// The hash function of the keys; `None` if the table is indexed by them.
    hash: Option<PerfectHash>,
    tables: ContextTransitionTables,
}

/// Constant tables that all versions of a function share, created on first use.
#[derive(Default)]
pub struct ContextTransitionTables([OnceCell<(Value, Type)>; 3]);

impl ContextTransitionTables {
    /// Returns a table and the type of its entries, creating the table if necessary.
    pub fn find_or_add_table(&self, which: usize, builder: &Builder, name: &str, entries: impl FnOnce() -> Vec<u64>) -> (Value, Type) {
        *self.0[which].get_or_init(|| add_constant_table(builder.module, name, &entries()))
    }

    /// Emits the load of a table entry, zero-extended to 64 bits.
    pub fn emit_entry_load(&self, which: usize, builder: &Builder, at: Value, name: &str, entries: impl FnOnce() -> Vec<u64>) -> Value {
        let (table, kind) = self.find_or_add_table(which, builder, name, entries);
        builder.zero_extend(builder.load(kind, builder.offset(kind, table, at)))
    }
}

impl ContextTransition {
    /// Builds the table for the given paths of a caller, in all of the caller's contexts. `sums` maps the path register's final value on
    /// each path to the path's number.
    pub fn new((set, caller): (&SegmentSet, u32), callee: u32, sums: &BTreeMap<u64, u64>, (bits, rows): (u32, u64)) -> ContextTransition {
        let own = set.functions()[caller as usize].contexts.len() as u32;
        let target = |context: u32, path: u64| set.context_after_call(caller, context, path, callee);
        if sums.values().all(|path| (1..=own).all(|context| target(context, *path) == target(0, *path))) {
            let contexts = sums.iter().map(|(sum, path)| (*sum, target(0, *path))).collect();
            let mask = (own > 0).then(|| (1 << bits) - 1);
            return ContextTransition::from_contexts(callee, mask, contexts, 1 << bits);
        }
        let all = (0..=own).flat_map(|context| sums.iter().map(move |(sum, path)| (context, *sum, *path)));
        let keyed = all.map(|(context, sum, path)| (u64::from(context) << bits | sum, target(context, path)));
        ContextTransition::from_contexts(callee, None, keyed.filter(|(_, target)| *target > 0).collect(), rows)
    }

    fn from_contexts(callee: u32, mask: Option<u64>, contexts: BTreeMap<u64, u32>, bound: u64) -> ContextTransition {
        let keys: Vec<u64> = contexts.keys().copied().collect();
        let hash = if bound <= MAX_INDEXED_ENTRIES || keys.len() < 2 { None } else { PerfectHash::from_keys(&keys).ok() };
        ContextTransition { callee, mask, contexts, bound, hash, tables: ContextTransitionTables::default() }
    }

    pub fn constant_context(&self, number: u64) -> u32 {
        self.contexts.get(&self.mask.map_or(number, |mask| number & mask)).copied().unwrap_or(0)
    }

    pub fn emit_lookup(&self, builder: &Builder, function: Value, number: Value) -> Value {
        let constant = |value: u64| builder.constant(value);
        let number = self.mask.map_or(number, |mask| builder.and(number, constant(mask)));
        let same = |key: Value| builder.equal(number, key);
        if self.contexts.len() == 1 {
            let (key, context) = self.contexts.iter().next().map(|(k, c)| (*k, *c)).unwrap_or_default();
            return builder.select(same(constant(key)), constant(context.into()), constant(0));
        }
        let name = format!("{}.contexts", function.name());
        let context = |key: u64| self.contexts.get(&key).copied().unwrap_or(0).into();
        match &self.hash {
            Some(hash) => {
                let (slot, slots) = (emit_hash_slot(builder, hash, number), 0..hash.slots());
                let slot_keys = || slots.clone().map(|s| hash.key(s).unwrap_or(u64::MAX)).collect();
                let key = self.tables.emit_entry_load(0, builder, slot, &name, slot_keys);
                let slot_contexts = || slots.clone().map(|s| hash.key(s).map_or(0, context)).collect();
                let found = self.tables.emit_entry_load(1, builder, slot, &name, slot_contexts);
                builder.select(same(key), found, constant(0))
            }
            None => self.tables.emit_entry_load(0, builder, number, &name, || (0..self.bound).map(context).collect()),
        }
    }
}

pub fn emit_hash_slot(builder: &Builder, hash: &PerfectHash, number: Value) -> Value {
    let (multiplier, shift) = hash.parameters();
    builder.shift_right(builder.multiply(number, builder.constant(multiplier)), builder.constant(shift.into()))
}
