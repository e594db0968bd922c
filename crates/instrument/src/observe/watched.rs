//! Watched paths: counted as [unknown ones](super::unknown) are, all others being known.

use super::unknown::UnknownPaths;
use crate::llvm::Module;
use crate::unit::each_iteration;

/// The observer of watched paths. A watch is notified of each at once, so none waits for the end of a loop.
pub fn begin(module: Module) -> UnknownPaths {
    UnknownPaths::with(module, each_iteration, |_, _| None)
}
