//! Watched paths: counted like [unknown ones](super::unknown), with all others known.

use super::unknown::UnknownPaths;
use crate::llvm::Module;
use crate::unit::count_each_iteration;

/// Creates the observer of watched paths. A watch is notified immediately, so counting does not wait for the end of a loop.
pub fn begin(module: Module) -> UnknownPaths {
    UnknownPaths::new(module, count_each_iteration, |_, _| None)
}
