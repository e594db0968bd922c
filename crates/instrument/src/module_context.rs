//! What inserted code refers to outside the function that it is in.

use crate::llvm::{Module, Value};

/// What the code refers to outside the function.
#[derive(Clone, Copy)]
pub struct ModuleContext {
    /// The module.
    pub module: Module,
    /// The unit's counters.
    pub counters: Value,
    /// The thread-local bias.
    pub bias: Value,
    /// The runtime's function that acquires a region.
    pub enter: Value,
}
