//! Counts watched paths, of which the user wants to be notified: like [unknown paths](super::unknown), as if all other paths were known.

use super::unknown::UnknownPaths;
use crate::llvm::Module;
use crate::unit::count_each_iteration;

/// Creates the observer. Each loop iteration is counted when it ends, so that the user is notified at once.
pub fn create_watched_paths_observer(module: Module) -> UnknownPaths {
    UnknownPaths::new(module, count_each_iteration, |_, _| None)
}
