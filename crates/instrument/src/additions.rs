//! Additions to words of memory that lose nothing to a signal handler which adds to the same word.

use crate::llvm::{Block, Builder, Value, llvm};
use crate::unoptimised;
use llvm_sys::core::*;
use llvm_sys::{LLVMAtomicOrdering, LLVMAtomicRMWBinOp};

/// An addition to a word of memory in one instruction.
const ADD: &str = "addq $1, $0";
/// The word, a summand that an instruction can hold or one in a register. Neither the state of the floating-point unit nor the
/// direction of string instructions changes; to name them would take LLVM most of the time that this code costs it.
const ADD_OPERANDS: &str = "*m,re,~{memory},~{flags}";

const ADD_WIDE: &str = "addq $2, $0\n\tadcq $3, $1";
const ADD_WIDE_OPERANDS: &str = "*m,*m,re,re,~{memory},~{flags}";

/// Adds to the word at an address, which other threads add to as well if that is to be `atomic`.
pub fn add_to_word(builder: &Builder, address: Value, by: Value, atomic: bool) {
    // It has to be one instruction, so that a signal handler which counts there in between loses nothing.
    if unoptimised::is_unoptimised(function_of(builder)) {
        unoptimised::add_to_word(builder, address, by, atomic);
        return;
    }
    add_by_instructions(builder, address, by, atomic);
}

/// The same without a call: where calls would be taken for the program's, or charged to its paths.
pub fn add_in_place(builder: &Builder, address: Value, by: Value, atomic: bool) {
    if !atomic && unoptimised::is_unoptimised(function_of(builder)) {
        builder.assembly_on_memory(ADD, ADD_OPERANDS, &[address], &[by]);
        return;
    }
    add_by_instructions(builder, address, by, atomic);
}

fn add_by_instructions(builder: &Builder, address: Value, by: Value, atomic: bool) {
    if atomic {
        let (add, order) = (LLVMAtomicRMWBinOp::LLVMAtomicRMWBinOpAdd, LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic);
        llvm!(LLVMBuildAtomicRMW(builder.raw(), add, address.0, by.0, order, 0));
        return;
    }
    let old = builder.load(builder.module.i64(), address);
    let new = builder.add(old, by);
    builder.store(new, address);
}

/// Adds to two words at an address, which are one number. If a signal handler adds to them between the two instructions, nothing is
/// lost: the carry of the lower word is in the flags, which are restored when the handler returns.
pub fn add_to_two_words(builder: &Builder, address: Value, [low, high]: [Value; 2]) {
    let upper = builder.offset(builder.module.i64(), address, builder.constant(1));
    builder.assembly_on_memory(ADD_WIDE, ADD_WIDE_OPERANDS, &[address, upper], &[low, high]);
}

fn function_of(builder: &Builder) -> Value {
    Block(llvm!(LLVMGetInsertBlock(builder.raw()))).function()
}
