//! Function entry: the address of the thread's counters, and the check whether the thread has a region.
//!
//! A thread that counts for the first time has no region yet; a cold path calls the runtime to acquire one. Functions that only
//! instrumented functions call need no check.

use crate::llvm::{Block, Builder, DebugLocation, Module, Value};
use crate::module_context::ModuleContext;
use crate::shape::new_block_after;
use crate::weights::mark_branch_unlikely;
use llvm_sys::LLVMOpcode;

/// Emits, at function entry, the address of the calling thread's copy of the unit's counters. If the thread `may_lack_region`, the code
/// acquires one first.
pub fn emit_thread_counters(context: ModuleContext, function: Value, location: Option<DebugLocation>, may_lack_region: bool) -> Value {
    let module = context.module;
    if !may_lack_region {
        let builder = Builder::before(module, function.entry().after_allocas(), location);
        let bias = builder.load(module.i64(), context.bias);
        return builder.offset(module.i8(), context.counters, bias);
    }
    let (check, entry) = insert_entry_block(module, function);
    let (base, end) = emit_region_check(context, check, location);
    Builder::at_end(module, end, location).jump(entry);
    base
}

/// Emits, at function entry, the address at which residual code (it counts only paths that earlier runs have not taken) may increment
/// counters without a call. It is the address of the thread's copy or, while the runtime must see each count, that of the image's counters,
/// which stay 0. The emitted code also gives the thread a region if it has none.
pub fn emit_direct_thread_counters(context: ModuleContext, function: Value, direct_bias: Value, location: Option<DebugLocation>) -> Value {
    let module = context.module;
    let (check, entry) = insert_entry_block(module, function);
    let (_, end) = emit_region_check(context, check, location);
    let builder = Builder::at_end(module, end, location);
    let copies = builder.offset(module.i8(), context.counters, builder.load(module.i64(), direct_bias));
    builder.jump(entry);
    copies
}

/// Creates a new entry block, without terminator, to which the static allocas are moved. Returns the new and the old entry block.
pub fn insert_entry_block(module: Module, function: Value) -> (Block, Block) {
    let old = function.entry();
    let new = Block::insert_before(module, old);
    move_static_allocas(module, old, new);
    (new, old)
}

/// Emits the check for a region and the address of the thread's counters at the end of `check`, a block without terminator. Returns the
/// address and the block where code continues, which has no terminator either.
pub fn emit_region_check(context: ModuleContext, check: Block, location: Option<DebugLocation>) -> (Value, Block) {
    let module = context.module;
    let (end, acquire) = (new_block_after(module, check), new_block_after(module, check));
    let builder = Builder::at_end(module, check, location);
    let bias = builder.load(module.i64(), context.bias);
    mark_branch_unlikely(module, builder.branch(builder.equal(bias, module.constant(0)), acquire, end));
    let builder = Builder::at_end(module, acquire, location);
    let acquired = builder.call(context.enter, &[]);
    acquired.set_call_convention(context.enter.convention());
    builder.jump(end);
    let builder = Builder::at_end(module, end, location);
    let known = builder.phi(module.i64());
    known.add_incoming(&[(bias, check), (acquired, acquire)]);
    (builder.offset(module.i8(), context.counters, known), end)
}

pub fn move_static_allocas(module: Module, from: Block, to: Block) {
    let builder = Builder::at_end(module, to, None);
    for alloca in from.instructions().filter(is_static_alloca).collect::<Vec<_>>() {
        let location = alloca.location();
        alloca.remove_from_block();
        builder.insert(alloca);
        alloca.set_location(location);
    }
}

fn is_static_alloca(instruction: &Value) -> bool {
    instruction.is(LLVMOpcode::LLVMAlloca) && instruction.operand(0).is_constant_integer()
}
