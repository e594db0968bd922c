//! Modules for unit tests, parsed from LLVM's assembly language. Unit tests are linked with LLVM; the plugin is not.

use super::functions::{LLVMContextCreate, LLVMCreateMemoryBufferWithMemoryRangeCopy, LLVMGetBasicBlockName};
use super::handles::{Block, LlvmContext, MemoryBuffer, Module, OwnedText, Terminated, Value};
use super::values::take;
use std::ffi::c_int;

// SAFETY: the handles are live, the references are valid for writing, and LLVM keeps no pointer to the buffer.
#[link(name = "LLVM-22")]
unsafe extern "C" {
    safe fn LLVMParseIRInContext2(
        context: LlvmContext,
        buffer: MemoryBuffer,
        module: &mut Option<Module>,
        message: &mut Option<OwnedText>,
    ) -> c_int;
}

/// Parses a module. Its context is never freed, so handles stay valid.
///
/// # Panics
/// Panics if the text is not a valid module.
pub fn parse(text: &str) -> Module {
    // SAFETY: pointer and length are those of `text`, which LLVM copies.
    let buffer = unsafe { LLVMCreateMemoryBufferWithMemoryRangeCopy(text.as_ptr().cast(), text.len(), Terminated::from(c"test")) };
    let (mut module, mut message) = (None, None);
    let failed = LLVMParseIRInContext2(LLVMContextCreate(), buffer, &mut module, &mut message);
    assert!(failed == 0, "{}", message.map(take).unwrap_or_default());
    module.expect("a module was parsed")
}

pub fn block(function: Value, name: &str) -> Block {
    function.blocks().find(|block| LLVMGetBasicBlockName(*block).to_text() == name).expect("the function has the block")
}
