//! Additions to words in memory that remain correct if a signal handler interrupts them and adds to the same word.

use crate::llvm::{Builder, Value};
use crate::unoptimised;

const ADD_INSTRUCTION: &str = "addq $1, $0";
/// Constraints of [`ADD_INSTRUCTION`]: a word in memory, and an immediate or register operand. The FPU status and the direction flag are
/// not listed as clobbered, because the instruction does not change them and parsing them would take most of the time it takes to build
/// this code.
const ADD_CONSTRAINTS: &str = "*m,re,~{memory},~{flags}";

const ADD_128_BIT_INSTRUCTIONS: &str = "addq $2, $0\n\tadcq $3, $1";
const ADD_128_BIT_CONSTRAINTS: &str = "*m,*m,re,re,~{memory},~{flags}";

/// Emits an addition to the word at an address. `atomic` is required if other threads also add to the word.
pub fn add_to_word(builder: &Builder, address: Value, by: Value, atomic: bool) {
    // Unoptimised code would load, add and store separately, and lose the additions of a signal handler that interrupts it.
    if unoptimised::is_unoptimised(containing_function(builder)) {
        unoptimised::add_to_word(builder, address, by, atomic);
        return;
    }
    emit_add(builder, address, by, atomic);
}

/// Emits the same addition as [`add_to_word`], but never as a call to a helper function: such a call could be mistaken for one that the
/// program makes, or its events could be charged to the program's paths.
pub fn add_to_word_inline(builder: &Builder, address: Value, by: Value, atomic: bool) {
    if !atomic && unoptimised::is_unoptimised(containing_function(builder)) {
        builder.assembly_on_memory(ADD_INSTRUCTION, ADD_CONSTRAINTS, &[address], &[by]);
        return;
    }
    emit_add(builder, address, by, atomic);
}

fn emit_add(builder: &Builder, address: Value, by: Value, atomic: bool) {
    if atomic {
        builder.atomic_add(address, by);
        return;
    }
    let old = builder.load(builder.module.i64(), address);
    let new = builder.add(old, by);
    builder.store(new, address);
}

/// Emits an addition to a 128-bit number in memory. A signal handler may add to the number between the two instructions: the carry is in
/// the flags, which are restored when the handler returns.
pub fn add_to_two_words(builder: &Builder, address: Value, [low, high]: [Value; 2]) {
    let upper = builder.offset(builder.module.i64(), address, builder.constant(1));
    builder.assembly_on_memory(ADD_128_BIT_INSTRUCTIONS, ADD_128_BIT_CONSTRAINTS, &[address, upper], &[low, high]);
}

fn containing_function(builder: &Builder) -> Value {
    builder.block().function()
}
