//! Running LLVM's passes.

use super::functions::*;
use super::handles::{Module, OwnedPassError, PassOptionsHandle, TargetMachine};
use std::ffi::CStr;

/// LLVM's default options for runs of passes.
pub struct PassOptions(PassOptionsHandle);

impl Default for PassOptions {
    fn default() -> PassOptions {
        PassOptions(LLVMCreatePassBuilderOptions())
    }
}

impl Drop for PassOptions {
    fn drop(&mut self) {
        // SAFETY: runs of passes keep no copy of the handle, and it ends here.
        unsafe { LLVMDisposePassBuilderOptions(self.0) }
    }
}

impl PassOptions {
    /// Returns the handle, to be used before the options are dropped.
    pub fn handle(&self) -> PassOptionsHandle {
        self.0
    }
}

impl OwnedPassError {
    /// Returns LLVM's message. It is leaked, because the compilation ends.
    pub fn message(self) -> String {
        LLVMGetErrorMessage(self).to_text()
    }
}

impl Module {
    /// Runs passes on the module.
    ///
    /// # Safety
    /// No handle is used afterwards to what the passes may delete.
    pub unsafe fn run_passes(self, names: &CStr, machine: TargetMachine, options: &PassOptions) -> Option<OwnedPassError> {
        // SAFETY: names and options are alive, and the caller uses no handle to what the passes delete.
        unsafe { LLVMRunPasses(self, names.into(), machine, options.handle()) }
    }
}
