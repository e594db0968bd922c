//! Modules for unit tests, parsed from LLVM's assembly language. Unit tests are linked with LLVM; the plugin is not.

use super::{Block, Module, Value, llvm, owned};
use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyFunction};
use llvm_sys::core::*;
use llvm_sys::ir_reader::LLVMParseIRInContext2;

#[link(name = "LLVM-22")]
unsafe extern "C" {}

/// Parses a module. Its context is never freed, so handles stay valid.
///
/// # Panics
/// The text is not a valid module.
pub fn parse(text: &str) -> Module {
    let (mut module, mut message) = (std::ptr::null_mut(), std::ptr::null_mut());
    let context = llvm!(LLVMContextCreate());
    let buffer = llvm!(LLVMCreateMemoryBufferWithMemoryRangeCopy(text.as_ptr().cast(), text.len(), c"test".as_ptr()));
    let failed = llvm!(LLVMParseIRInContext2(context, buffer, &mut module, &mut message));
    assert!(failed == 0, "{}", owned(message));
    Module::new(module)
}

pub fn block(function: Value, name: &str) -> Block {
    let is_wanted = |block: &Block| {
        let raw = llvm!(LLVMGetBasicBlockName(block.0));
        // SAFETY: LLVM returns a NUL-terminated string that lives as long as the block.
        unsafe { std::ffi::CStr::from_ptr(raw) }.to_bytes() == name.as_bytes()
    };
    function.blocks().find(is_wanted).expect("the function has the block")
}

pub fn is_valid(function: Value) -> bool {
    llvm!(LLVMVerifyFunction(function.0, LLVMVerifierFailureAction::LLVMPrintMessageAction)) == 0
}
