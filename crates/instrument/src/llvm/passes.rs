//! Runs LLVM's passes.

use super::functions::*;
use super::handles::{Module, OwnedPassError, PassOptionsHandle, TargetMachine};
use std::ffi::CStr;

/// Options for running passes, with LLVM's defaults.
pub struct PassOptions(PassOptionsHandle);

impl Default for PassOptions {
    fn default() -> PassOptions {
        PassOptions(LLVMCreatePassBuilderOptions())
    }
}

impl Drop for PassOptions {
    fn drop(&mut self) {
        // SAFETY: LLVM keeps no copy of the handle after a run, and nothing uses it after this.
        unsafe { LLVMDisposePassBuilderOptions(self.0) }
    }
}

impl PassOptions {
    /// Returns the handle, which must not be used after the options are dropped.
    pub fn handle(&self) -> PassOptionsHandle {
        self.0
    }
}

impl OwnedPassError {
    /// Returns LLVM's message. It is never freed, which does not matter because the compilation ends.
    pub fn message(self) -> String {
        LLVMGetErrorMessage(self).to_text()
    }
}

impl Module {
    /// Runs passes on the module. Returns an error if LLVM rejects the names of the passes.
    ///
    /// # Safety
    /// No handle to anything that the passes may delete may be used afterwards.
    pub unsafe fn run_passes(self, names: &CStr, machine: TargetMachine, options: &PassOptions) -> Option<OwnedPassError> {
        // SAFETY: names and options are live during the call, and the caller uses no handle to what the passes delete.
        unsafe { LLVMRunPasses(self, names.into(), machine, options.handle()) }
    }
}
