//! Watched paths: counted like [unknown paths](super::unknown), as if all other paths were known.

use super::unknown::UnknownPaths;
use crate::llvm::Module;
use crate::unit::count_each_iteration;

/// Creates the observer of watched paths. Each iteration is counted when it ends, so that a watch is notified immediately.
pub fn begin(module: Module) -> UnknownPaths {
    UnknownPaths::new(module, count_each_iteration, |_, _| None)
}
