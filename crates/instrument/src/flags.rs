//! What the driver says of the compilation that the plugin cannot ask LLVM.

use crate::llvm::llvm;
use llvm_sys::support::LLVMParseCommandLineOptions;
use std::ffi::CStr;

/// The flags of the compilation that shape code generation, as the driver passes them on: words separated by U+001F.
pub fn code_generation_flags() -> Vec<String> {
    let words = std::env::var("TRODDEN_CODEGEN").unwrap_or_default();
    words.split('\u{1f}').filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// Sets an option of LLVM's for this process, which ends where one is given twice.
pub fn set_option(option: &CStr) {
    let words = [c"trodden".as_ptr(), option.as_ptr()];
    llvm!(LLVMParseCommandLineOptions(words.len() as i32, words.as_ptr(), std::ptr::null()));
}
