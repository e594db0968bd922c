//! Raises limits of code generation that would penalise functions with two versions of their code.
//!
//! LLVM bounds the effort it spends on functions with many edges. An interpreter that dispatches by indirect branches reaches these limits
//! sooner if every instruction has two versions. Limits that the user has set are kept. They are options of the process and affect all
//! code that it generates afterwards. If a linker generates code in several threads, the modules affected vary from run to run, but only
//! in speed.

use crate::flags::{code_generation_flags, set_option};
use std::ffi::CStr;
use std::sync::Once;

/// A limit of LLVM's that can be raised to one higher value.
pub struct RaisedLimit {
    name: &'static str,
    raised: &'static CStr,
    once: Once,
}

/// The maximum number of predecessors into which an indirect branch is duplicated. The value is that of the sample tier's
/// `dispatch::MAX_COPIED_LANDINGS`. The limit only matters where values are merged at such branches.
pub static DUPLICATED_BRANCHES: RaisedLimit =
    RaisedLimit { name: "tail-dup-pred-size", raised: c"-tail-dup-pred-size=128", once: Once::new() };

/// The maximum number of attempts to coalesce a value that has more than a hundred definitions with other values, which avoids moves. With
/// the default, each instruction of an interpreter moves its values before it jumps, which was 8 % of the instructions in one case. The
/// purpose of the default is to limit compile time, but the higher value did not change it.
pub static COALESCED_VALUES: RaisedLimit =
    RaisedLimit { name: "large-interval-freq-threshold", raised: c"-large-interval-freq-threshold=100000000", once: Once::new() };

impl RaisedLimit {
    /// Raises the limit, unless the user has set it.
    pub fn raise(&self) {
        self.once.call_once(|| {
            let given = std::env::args_os().any(|word| word.to_string_lossy().contains(self.name));
            // An option in a response file is not among the arguments, but the driver passes it on.
            if given || code_generation_flags().iter().any(|word| word.contains(self.name)) {
                return;
            }
            set_option(self.raised);
        });
    }
}
