//! Witness sleds: eight bytes at the beginning of each block, which do nothing until a collector of traces puts a jump there.
//!
//! A sled is an instruction that no compiler makes ([`SLED`]), so that collectors know it in the machine code without any
//! table; stripping takes nothing from it. It is a piece of assembly that may touch memory, so that code generation moves no access to
//! memory from one side of it to the other: what faults in a block does so behind its sled.
//!
//! A block that cannot be reached has none: code generation would keep it, and let it run into whatever comes behind.

use crate::debug::no_line;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use llvm_sys::core::*;
use llvm_sys::{LLVMInlineAsmDialect, LLVMOpcode};
use trodden_wire::SLED;

/// Puts a sled into each block of functions.
pub fn insert(module: Module, functions: Vec<Value>) {
    let kind = llvm!(LLVMFunctionType(LLVMVoidTypeInContext(module.context()), std::ptr::null_mut(), 0, 0));
    let (text, touches) = (SLED.map(|byte| format!("{byte:#04x}")).join(","), "~{memory}");
    let (text, dialect) = (format!(".byte {text}"), LLVMInlineAsmDialect::LLVMInlineAsmDialectATT);
    let (text_at, touches_at) = (text.as_ptr().cast(), touches.as_ptr().cast());
    let sled = llvm!(LLVMGetInlineAsm(kind, text_at, text.len(), touches_at, touches.len(), 1, 0, dialect, 0));
    for function in functions {
        let line = no_line(module, function);
        for block in function.blocks().collect::<Vec<Block>>() {
            let alloca_or_head =
                |i: &Value| [LLVMOpcode::LLVMPHI, LLVMOpcode::LLVMLandingPad, LLVMOpcode::LLVMAlloca].contains(&i.opcode());
            let first = block.instructions().find(|i| !alloca_or_head(i)).expect("a block has a terminator");
            if first.is(LLVMOpcode::LLVMUnreachable) {
                continue;
            }
            let builder = Builder::before(module, first, line);
            llvm!(LLVMBuildCall2(builder.raw(), kind, sled, std::ptr::null_mut(), 0, c"".as_ptr()));
        }
    }
}
