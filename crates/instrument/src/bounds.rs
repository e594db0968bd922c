//! Raises limits of code generation that would penalise functions with two versions of their code.
//!
//! LLVM bounds the effort it spends on functions with many edges. An interpreter that dispatches by indirect branches reaches these limits
//! sooner if every instruction has two versions. Limits that the user has set are kept. They are options of the process and affect all
//! code that it generates afterwards. If a linker generates code in several threads, the modules affected vary from run to run, but only
//! in speed.

use crate::flags::{code_generation_flags, set_option};
use std::ffi::CStr;
use std::sync::Once;

/// A limit, with its higher value.
pub struct RaisedLimit {
    name: &'static str,
    raised: &'static CStr,
    once: Once,
}

/// Maximum number of predecessors of an indirect branch that is still duplicated into each of them: as many as
/// `dispatch::MAX_COPIED_LANDINGS` of the sample tier allows an interpreter. It only matters where values are merged at such branches.
pub static DUPLICATED_BRANCHES: RaisedLimit =
    RaisedLimit { name: "tail-dup-pred-size", raised: c"-tail-dup-pred-size=128", once: Once::new() };

/// Maximum number of attempts to coalesce a value with more than a hundred definitions into another's register, so that it need not be
/// moved. At the default, every instruction of an interpreter moves its values before it jumps, which was 8 % of the instructions in one
/// case. The default bounds compile time, which the higher value did not change.
pub static COALESCED_VALUES: RaisedLimit =
    RaisedLimit { name: "large-interval-freq-threshold", raised: c"-large-interval-freq-threshold=100000000", once: Once::new() };

impl RaisedLimit {
    /// Raises the limit, unless the user has set it.
    pub fn raise(&self) {
        self.once.call_once(|| {
            let given = std::env::args_os().any(|word| word.to_string_lossy().contains(self.name));
            // A response file hides it from the arguments, but the driver passes its words on.
            if given || code_generation_flags().iter().any(|word| word.contains(self.name)) {
                return;
            }
            set_option(self.raised);
        });
    }
}
