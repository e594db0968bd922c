//! Inserts sleds for tracing: eight bytes at the start of each block that do nothing until a trace collector writes a jump there.
//!
//! A sled is an instruction that no compiler emits ([`WITNESS_SLED_INSTRUCTION`]), so collectors find it in machine code without a table,
//! even in stripped programs. It is inline assembly that clobbers memory, so code generation moves no memory access across it: if an access
//! faults, its block's sled was executed. Unreachable blocks get no sled, because code generation would then keep them, and control could
//! run into the code that follows.

use crate::debug::location_without_line;
use crate::llvm::{Block, Builder, Module, Value};
use llvm_sys::LLVMOpcode;
use trodden_wire::WITNESS_SLED_INSTRUCTION;

pub fn insert_sleds(module: Module, functions: Vec<Value>) {
    let text = format!(".byte {}", WITNESS_SLED_INSTRUCTION.map(|byte| format!("{byte:#04x}")).join(","));
    for function in functions {
        let line = location_without_line(module, function);
        for block in function.blocks().collect::<Vec<Block>>() {
            let first = block.first_instruction_after_allocas();
            if !first.is(LLVMOpcode::LLVMUnreachable) {
                Builder::before(module, first, line).assembly(module.void(), &text, "~{memory}", &[]);
            }
        }
    }
}
