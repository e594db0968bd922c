//! The globals and runtime functions that a module's inserted code refers to.

use crate::llvm::{Module, Value};

#[derive(Clone, Copy)]
pub struct ModuleContext {
    pub module: Module,
    pub counters: Value,
    pub bias: Value,
    /// The runtime function that gives the calling thread its copy of the counters.
    pub enter: Value,
}
