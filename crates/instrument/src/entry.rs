//! Where a function begins: the address of the thread's counters, and the check whether the thread has a region.
//!
//! A thread that counts for the first time has no region; the runtime is called then, on a path of its own. Functions that only
//! instrumented functions call find the region acquired, and have no check.

use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::module_context::ModuleContext;
use crate::shape::new_block_behind;
use crate::weights::mark_unlikely;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;

/// Address of the calling thread's copy of the unit's counters, computed at the function's entry. `may_be_first`: some
/// thread may count here for the first time, so it is checked whether it has a region.
pub fn counters_of_thread(context: ModuleContext, function: Value, location: Option<LLVMMetadataRef>, may_be_first: bool) -> Value {
    let module = context.module;
    if !may_be_first {
        let builder = Builder::before(module, function.entry().behind_variables(), location);
        let bias = builder.load(module.i64(), context.bias);
        return builder.offset(module.i8(), context.counters, bias);
    }
    let (check, entry) = new_entry(module, function);
    let (base, end) = counters_at(context, check, location);
    Builder::at_end(module, end, location).jump(entry);
    base
}

/// Where code of the residual tier counts by itself: the address of the thread's copy, or of the template, whose
/// counters stay 0, while the runtime is to see each count. Computed at the function's entry; the thread has a region
/// then.
pub fn direct_counters_of_thread(context: ModuleContext, function: Value, direct_bias: Value, location: Option<LLVMMetadataRef>) -> Value {
    let module = context.module;
    let (check, entry) = new_entry(module, function);
    let (_, end) = counters_at(context, check, location);
    let builder = Builder::at_end(module, end, location);
    let copies = builder.offset(module.i8(), context.counters, builder.load(module.i64(), direct_bias));
    builder.jump(entry);
    copies
}

/// A new entry block with the stack's fixed variables; not ended yet. Gives it and the old one.
pub fn new_entry(module: Module, function: Value) -> (Block, Block) {
    let old = function.entry();
    let new = Block(llvm!(LLVMInsertBasicBlockInContext(module.context(), old.0, c"".as_ptr())));
    move_static_allocas(module, old, new);
    (new, old)
}

/// The same address, computed at the end of a block that is not ended yet, with the check whether the thread has a
/// region. Gives it and the block that is to be ended now.
pub fn counters_at(context: ModuleContext, check: Block, location: Option<LLVMMetadataRef>) -> (Value, Block) {
    let module = context.module;
    let (end, acquire) = (new_block_behind(module, check), new_block_behind(module, check));
    let builder = Builder::at_end(module, check, location);
    let bias = builder.load(module.i64(), context.bias);
    mark_unlikely(module, builder.branch(builder.equal(bias, module.constant(0)), acquire, end));
    let builder = Builder::at_end(module, acquire, location);
    let acquired = builder.call(context.enter, &[]);
    llvm!(LLVMSetInstructionCallConv(acquired.0, llvm!(LLVMGetFunctionCallConv(context.enter.0))));
    builder.jump(end);
    let builder = Builder::at_end(module, end, location);
    let known = builder.phi(module.i64());
    known.add_incoming(&[(bias, check), (acquired, acquire)]);
    (builder.offset(module.i8(), context.counters, known), end)
}

/// Moves the variables that the stack frame holds for the whole call to the end of another block.
pub fn move_static_allocas(module: Module, from: Block, to: Block) {
    let builder = Builder::at_end(module, to, None);
    for alloca in from.instructions().filter(is_static_alloca).collect::<Vec<_>>() {
        let location = alloca.location();
        llvm!(LLVMInstructionRemoveFromParent(alloca.0));
        builder.insert(alloca);
        alloca.set_location(location);
    }
}

fn is_static_alloca(instruction: &Value) -> bool {
    instruction.is(LLVMOpcode::LLVMAlloca) && !llvm!(LLVMIsAConstantInt(instruction.operand(0).0)).is_null()
}
