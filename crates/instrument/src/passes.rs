//! LLVM's passes and its verifier.

use crate::error::InstrumentError;
use crate::host;
use crate::llvm::{Module, Value, llvm};
use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyFunction};
use llvm_sys::error::{LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::target_machine::LLVMTargetMachineRef;
use llvm_sys::transforms::pass_builder::*;
use std::ffi::{CStr, CString};

pub fn verify(function: Value) -> Result<(), InstrumentError> {
    match llvm!(LLVMVerifyFunction(function.0, LLVMVerifierFailureAction::LLVMPrintMessageAction)) {
        0 => Ok(()),
        _ => Err(InstrumentError::InvalidFunction(function.name())),
    }
}

pub fn run_on_module(module: Module, machine: LLVMTargetMachineRef, passes: &'static str) -> Result<(), InstrumentError> {
    let run = |names: &CStr, options| llvm!(LLVMRunPasses(module.raw, names.as_ptr(), machine, options));
    run_with(passes, run, || module.source())
}

pub fn run_on_function(function: Value, machine: LLVMTargetMachineRef, passes: &'static str) -> Result<(), InstrumentError> {
    run_with(passes, |names, options| host::run_passes(function.0, names, machine, options), || function.name())
}

fn run_with(
    passes: &'static str,
    run: impl Fn(&CStr, LLVMPassBuilderOptionsRef) -> LLVMErrorRef,
    name: impl Fn() -> String,
) -> Result<(), InstrumentError> {
    let names = CString::new(passes).expect("pass names contain no NUL");
    let options = llvm!(LLVMCreatePassBuilderOptions());
    let error = run(&names, options);
    llvm!(LLVMDisposePassBuilderOptions(options));
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: LLVM returns a NUL-terminated message. It is leaked, because the compilation ends here.
    let what = unsafe { CStr::from_ptr(LLVMGetErrorMessage(error)) }.to_string_lossy().into_owned();
    Err(InstrumentError::Passes { function: name(), passes, what })
}
