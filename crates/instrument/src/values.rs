//! Profiles the values for which LLVM has value profiling: targets of indirect calls, and sizes of memory operations.
//!
//! LLVM keeps a list per site, which its runtime searches and extends. Here each site has a few of the unit's counters, so that the
//! values of threads and runs can be added up. [`ProfiledValueKind`] describes their meaning.

use crate::llvm::{Builder, Module, Value};
use indexmap::IndexSet;
use llvm_sys::LLVMIntPredicate::{LLVMIntNE, LLVMIntUGT, LLVMIntULT};
use llvm_sys::LLVMLinkage;
use trodden_unit::ProfiledValueKind;
use trodden_unit::edge_profile::{SIZE_CLASS_COUNT, TARGET_BUCKET_COUNT, TARGET_HASH_MULTIPLIER, size_of_class};

/// Symbol that linkers define at the start of an image.
const IMAGE_START_SYMBOL: &str = "__ehdr_start";
/// A call target at least this many bytes after the start of the image is assumed to be in another image.
const MAX_TARGET_DISTANCE_BYTES: u64 = 1 << 32;

/// Returns the kind of value that a call to a function of LLVM's instrumentation records.
pub fn recorded_value_kind(call: Value) -> ProfiledValueKind {
    if call.callee().name().ends_with("_memop") { ProfiledValueKind::Size } else { ProfiledValueKind::Target }
}

/// Converts LLVM's number of a site, which runs over all kinds, to a number within `kind`. `sites` has the number of sites of each kind.
/// Returns `None` if the site is of a different kind.
pub fn value_site_within_kind(kind: ProfiledValueKind, sites: [u16; 3], number: i64) -> Option<u16> {
    let number = u16::try_from(number).ok()?;
    match kind {
        ProfiledValueKind::Target => (number < sites[0]).then_some(number),
        ProfiledValueKind::Size => number.checked_sub(sites[0]).filter(|n| *n < sites[1]),
    }
}

/// Returns the globals into which an address may point, following it back through phi nodes and other instructions.
pub fn find_globals_pointed_to(address: Value) -> Vec<Value> {
    let (mut tables, mut seen, mut stack) = (Vec::new(), IndexSet::from([address]), vec![address]);
    while let Some(value) = stack.pop() {
        match value.is_instruction() {
            // The operands of a phi node are its incoming values.
            true => stack.extend(value.operands().filter(|s| seen.insert(*s))),
            false => tables.push(value),
        }
    }
    tables
}

/// Emits the index of the first counter for a call's site. The table's address was replaced by the index of the function's first counter.
pub fn emit_first_counter_index(builder: &Builder, call: Value) -> Value {
    let begin = builder.pointer_to_int(call.operand(1));
    let each = builder.constant(ProfiledValueKind::Target.counters().into());
    builder.add(begin, builder.multiply(builder.zero_extend(call.operand(2)), each))
}

/// Emits which of a site's counters to increment for a value. Returns pairs: the offset from the site's first counter, and the increment.
pub fn emit_value_increments(builder: &Builder, kind: ProfiledValueKind, value: Value) -> Vec<(Value, Value)> {
    match kind {
        ProfiledValueKind::Target => emit_target_increments(builder, value),
        ProfiledValueKind::Size => vec![(emit_size_class(builder, value), builder.constant(1))],
    }
}

fn emit_target_increments(builder: &Builder, address: Value) -> Vec<(Value, Value)> {
    let distance = builder.subtract(address, builder.pointer_to_int(declare_image_start(builder.module)));
    let near = builder.compare(LLVMIntULT, distance, builder.constant(MAX_TARGET_DISTANCE_BYTES));
    let distance = builder.select(near, distance, builder.constant(0));
    let product = builder.multiply(distance, builder.constant(TARGET_HASH_MULTIPLIER));
    let bucket = builder.shift_right(product, builder.constant((u64::BITS - TARGET_BUCKET_COUNT.ilog2()).into()));
    let calls = builder.add(bucket, bucket);
    vec![(calls, builder.constant(1)), (builder.add(calls, builder.constant(1)), distance)]
}

/// Emits the size class of `size`: the size itself up to 7, otherwise twice the index of the highest bit, plus 2, plus 1 if lower bits are
/// set.
fn emit_size_class(builder: &Builder, size: Value) -> Value {
    let constant = |value: u64| builder.constant(value);
    let max = constant(size_of_class(SIZE_CLASS_COUNT - 1));
    let size = builder.select(builder.compare(LLVMIntUGT, size, max), max, size);
    let highest = builder.subtract(constant(63), builder.count_zeros("llvm.ctlz", size));
    let lower = builder.and(size, builder.subtract(size, constant(1)));
    let between = builder.compare(LLVMIntNE, lower, constant(0));
    let class = builder.add(builder.add(highest, highest), builder.select(between, constant(3), constant(2)));
    builder.select(builder.compare(LLVMIntULT, size, constant(8)), size, class)
}

fn declare_image_start(module: Module) -> Value {
    module.global(IMAGE_START_SYMBOL).unwrap_or_else(|| {
        let start = module.add_hidden_global(IMAGE_START_SYMBOL, module.i8());
        // If the image's headers are not loaded, the symbol's address is 0, and all targets count as outside.
        start.set_linkage(LLVMLinkage::LLVMExternalWeakLinkage);
        start
    })
}
