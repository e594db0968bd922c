//! Witness sleds: eight bytes at the beginning of each block, which do nothing until a collector of traces puts a jump there.
//!
//! A sled is an instruction that no compiler makes ([`SLED`]), so that collectors know it in the machine code without any
//! table; stripping takes nothing from it. It is a piece of assembly that may touch memory, so that code generation moves no access to
//! memory from one side of it to the other: what faults in a block does so behind its sled.
//!
//! A block that cannot be reached has none: code generation would keep it, and let it run into whatever comes behind.

use crate::debug::no_line;
use crate::llvm::{Block, Builder, Module, Value};
use llvm_sys::LLVMOpcode;
use trodden_wire::SLED;

/// Puts a sled into each block of functions.
pub fn insert(module: Module, functions: Vec<Value>) {
    let text = format!(".byte {}", SLED.map(|byte| format!("{byte:#04x}")).join(","));
    for function in functions {
        let line = no_line(module, function);
        for block in function.blocks().collect::<Vec<Block>>() {
            let first = block.behind_head();
            if !first.is(LLVMOpcode::LLVMUnreachable) {
                Builder::before(module, first, line).assembly(module.void(), &text, "~{memory}", &[]);
            }
        }
    }
}
