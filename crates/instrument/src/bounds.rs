//! Bounds of code generation that hold up functions of two versions, raised where they do.
//!
//! LLVM bounds what it spends on functions of many edges, and an interpreter that dispatches by indirect branches, each of
//! whose instructions is reached from two versions, comes to these bounds sooner than the plain one. What the
//! compiler's caller has set stays as it is.
//!
//! Bounds are options of the process: they hold for all code that it generates from then on. Where a linker generates
//! code in several threads, which modules they reach is not the same each time; what the code does, and counts, is.

use crate::flags::{code_generation_flags, set_option};
use std::ffi::CStr;
use std::sync::Once;

/// A bound, with its higher value.
pub struct Bound {
    name: &'static str,
    raised: &'static CStr,
    once: Once,
}

/// How many places may lead to an indirect branch that is copied to each of them: as many as `dispatch::COPIED` of the
/// sample tier lets an interpreter have. It has no effect on code where values are not merged at such jumps.
pub static COPIED_JUMPS: Bound = Bound { name: "tail-dup-pred-size", raised: c"-tail-dup-pred-size=128", once: Once::new() };

/// How often it is tried to keep a value that is defined in more than a hundred places in the register of another, so
/// that it need not be moved there. At the bound each of an interpreter's instructions moves its values before it
/// jumps: that was 8 % of what one executed. It is there for the time that compilation takes, which the higher value left the
/// same.
pub static VALUES_TOGETHER: Bound =
    Bound { name: "large-interval-freq-threshold", raised: c"-large-interval-freq-threshold=100000000", once: Once::new() };

impl Bound {
    /// Raises it, unless the caller of the compiler has set it.
    pub fn raise(&self) {
        self.once.call_once(|| {
            let given = std::env::args_os().any(|word| word.to_string_lossy().contains(self.name));
            // In a response file it is among the words that the driver passes on.
            if given || code_generation_flags().iter().any(|word| word.contains(self.name)) {
                return;
            }
            set_option(self.raised);
        });
    }
}
