//! Counting values: where indirect calls go, how much memory operations move.
//!
//! LLVM's own way is a list per place, searched and extended by its runtime. Here a place has a few plain counters of
//! the unit, so that threads and runs add up; which, and what they mean, is said with [`ProfiledValueKind`].

use crate::llvm::{Builder, Module, Value, llvm};
use indexmap::IndexSet;
use llvm_sys::LLVMIntPredicate::{LLVMIntNE, LLVMIntUGT, LLVMIntULT};
use llvm_sys::LLVMLinkage;
use llvm_sys::core::*;
use trodden_unit::ProfiledValueKind;
use trodden_unit::edge_profile::{SIZE_CLASSES, TARGET_BUCKETS, TARGET_HASH, size_of_class};

/// The linker's symbol for the beginning of an image.
const IMAGE_START: &str = "__ehdr_start";
/// Targets further away belong to other images.
const MOST_DISTANCE: u64 = 1 << 32;

/// What values a call notes.
pub fn kind(call: Value) -> ProfiledValueKind {
    if call.callee().name().ends_with("_memop") { ProfiledValueKind::Size } else { ProfiledValueKind::Target }
}

/// The number of a place among those of its kind, given LLVM's running number over all kinds and the numbers of places.
pub fn site(kind: ProfiledValueKind, sites: [u16; 3], number: i64) -> Option<u16> {
    let number = u16::try_from(number).ok()?;
    match kind {
        ProfiledValueKind::Target => (number < sites[0]).then_some(number),
        ProfiledValueKind::Size => number.checked_sub(sites[0]).filter(|n| *n < sites[1]),
    }
}

/// The tables that an address may be of, through whatever the optimiser has made of it.
pub fn tables_behind(address: Value) -> Vec<Value> {
    let (mut tables, mut seen, mut stack) = (Vec::new(), IndexSet::from([address]), vec![address]);
    while let Some(value) = stack.pop() {
        match value.is_instruction() {
            // Operands of a phi node are what comes in.
            true => stack.extend(value.operands().filter(|s| seen.insert(*s))),
            false => tables.push(value),
        }
    }
    tables
}

/// The first counter for a call's place: its table's stand-in says where those of the function begin.
pub fn computed_first(builder: &Builder, call: Value) -> Value {
    let begin = builder.number_of(call.operand(1));
    let each = builder.constant(ProfiledValueKind::Target.counters().into());
    builder.add(begin, builder.multiply(builder.widen(call.operand(2)), each))
}

/// Which counters of a place get how much for a value.
pub fn increments(builder: &Builder, kind: ProfiledValueKind, value: Value) -> Vec<(Value, Value)> {
    match kind {
        ProfiledValueKind::Target => of_target(builder, value),
        ProfiledValueKind::Size => vec![(class_of_size(builder, value), builder.constant(1))],
    }
}

fn of_target(builder: &Builder, address: Value) -> Vec<(Value, Value)> {
    let distance = builder.subtract(address, builder.number_of(image_start(builder.module)));
    let near = builder.compare(LLVMIntULT, distance, builder.constant(MOST_DISTANCE));
    let distance = builder.select(near, distance, builder.constant(0));
    let product = builder.multiply(distance, builder.constant(TARGET_HASH));
    let bucket = builder.shift_right(product, builder.constant((u64::BITS - TARGET_BUCKETS.ilog2()).into()));
    let calls = builder.add(bucket, bucket);
    vec![(calls, builder.constant(1)), (builder.add(calls, builder.constant(1)), distance)]
}

/// `n` up to 7; else twice the place of the highest bit, and 2, and 1 if there are lower bits.
fn class_of_size(builder: &Builder, size: Value) -> Value {
    let constant = |value: u64| builder.constant(value);
    let most = constant(size_of_class(SIZE_CLASSES - 1));
    let size = builder.select(builder.compare(LLVMIntUGT, size, most), most, size);
    let highest = builder.subtract(constant(63), builder.count_zeros("llvm.ctlz", size));
    let lower = builder.and(size, builder.subtract(size, constant(1)));
    let between = builder.compare(LLVMIntNE, lower, constant(0));
    let class = builder.add(builder.add(highest, highest), builder.select(between, constant(3), constant(2)));
    builder.select(builder.compare(LLVMIntULT, size, constant(8)), size, class)
}

fn image_start(module: Module) -> Value {
    module.global(IMAGE_START).unwrap_or_else(|| {
        let start = module.add_hidden_global(IMAGE_START, module.i8());
        // An image whose headers are not loaded has no such place: all targets are elsewhere then.
        llvm!(LLVMSetLinkage(start.0, LLVMLinkage::LLVMExternalWeakLinkage));
        start
    })
}
