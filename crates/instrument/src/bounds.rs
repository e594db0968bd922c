//! Raises two limits of LLVM's code generator, which would slow down functions that contain both an instrumented and a plain version of
//! their code (the sample tier).
//!
//! LLVM bounds the effort it spends on functions with many edges. An interpreter that dispatches by indirect branches reaches these limits
//! sooner if every instruction has two versions. A limit that the user has set is kept. The limits are options of the process, so they
//! affect all code that it generates afterwards. If a linker generates code in several threads, it varies from run to run which modules are
//! affected, but only their speed depends on it.

use crate::flags::{code_generation_flags, set_option};
use std::ffi::CStr;
use std::sync::Once;

/// An LLVM option that bounds the effort of an optimisation, and the higher value that [`RaisedOptimisationLimit::raise_limit`] gives it.
pub struct RaisedOptimisationLimit {
    name: &'static str,
    raised: &'static CStr,
    once: Once,
}

/// Maximum number of predecessors into which LLVM duplicates a block that ends with an indirect branch. It is raised to the sample tier's
/// own limit, `dispatch::MAX_COPIED_LANDINGS`. The limit only matters if values are merged at such branches.
pub static BRANCH_DUPLICATION_LIMIT: RaisedOptimisationLimit =
    RaisedOptimisationLimit { name: "tail-dup-pred-size", raised: c"-tail-dup-pred-size=128", once: Once::new() };

/// Maximum number of attempts to coalesce a value that has more than a hundred definitions with other values, which saves moves. With the
/// default, each instruction of an interpreter moves its values before it jumps (8 % of all instructions in one program). The default is
/// meant to limit compile time, but raising it had no measurable effect on that.
pub static COALESCING_LIMIT: RaisedOptimisationLimit = RaisedOptimisationLimit {
    name: "large-interval-freq-threshold",
    raised: c"-large-interval-freq-threshold=100000000",
    once: Once::new(),
};

impl RaisedOptimisationLimit {
    /// Raises the limit, unless the user has set it.
    pub fn raise_limit(&self) {
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
