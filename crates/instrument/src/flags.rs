//! Compiler flags that LLVM does not tell the plugin, and that the driver therefore passes on in the environment.

use llvm_sys::support::LLVMParseCommandLineOptions;
use std::ffi::CStr;

/// Returns the flags that affect code generation, from `TRODDEN_CODEGEN` (separated by U+001F).
pub fn code_generation_flags() -> Vec<String> {
    let words = std::env::var("TRODDEN_CODEGEN").unwrap_or_default();
    words.split('\u{1f}').filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// Sets an LLVM option for this process. LLVM exits if an option is set twice.
pub fn set_option(option: &CStr) {
    let words = [c"trodden".as_ptr(), option.as_ptr()];
    // SAFETY: the array has that many zero-terminated strings, which LLVM copies. The third argument, an overview for `--help`, may be
    // null.
    unsafe { LLVMParseCommandLineOptions(words.len() as i32, words.as_ptr(), std::ptr::null()) };
}
