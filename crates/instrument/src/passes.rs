//! Runs LLVM's passes and its verifier.

use crate::error::InstrumentError;
use crate::host;
use crate::llvm::{Module, OwnedPassError, PassOptions, TargetMachine, Value};
use std::ffi::CString;

/// Runs LLVM's verifier on a function.
pub fn verify(function: Value) -> Result<(), InstrumentError> {
    match function.passes_verifier() {
        true => Ok(()),
        false => Err(InstrumentError::InvalidFunction(function.name())),
    }
}

/// Runs passes on a module.
///
/// # Safety
/// No handle to anything that the passes may delete may be used afterwards: code, constants, and local functions that become unused.
pub unsafe fn run_on_module(module: Module, machine: TargetMachine, passes: &'static str) -> Result<(), InstrumentError> {
    // SAFETY: this function requires of its caller what `Module::run_passes` requires.
    let error = unsafe { module.run_passes(&pass_names(passes), machine, &PassOptions::default()) };
    check_pass_error(error, passes, || module.source())
}

/// Runs passes on a function.
///
/// # Safety
/// No handle to the function's code, or to a constant, may be used afterwards.
pub unsafe fn run_on_function(function: Value, machine: TargetMachine, passes: &'static str) -> Result<(), InstrumentError> {
    // SAFETY: this function requires of its caller what `host::run_passes` requires.
    let error = unsafe { host::run_passes(function, &pass_names(passes), machine, &PassOptions::default()) };
    check_pass_error(error, passes, || function.name())
}

fn pass_names(passes: &str) -> CString {
    CString::new(passes).expect("pass names contain no NUL")
}

fn check_pass_error(error: Option<OwnedPassError>, passes: &'static str, name: impl Fn() -> String) -> Result<(), InstrumentError> {
    error.map_or(Ok(()), |error| Err(InstrumentError::Passes { function: name(), passes, what: error.message() }))
}
