//! Globals and runtime functions that inserted code refers to.

use crate::llvm::{Module, Value};

#[derive(Clone, Copy)]
pub struct ModuleContext {
    pub module: Module,
    pub counters: Value,
    pub bias: Value,
    /// The runtime's function that acquires a region for the thread.
    pub enter: Value,
}
