//! A version of a function: its code, how that learns the context of its first path, and which versions it calls.

use super::calls::{self, Passing};
use crate::describe::FunctionCfg;
use crate::llvm::{Module, Value};
use crate::sample::copies::Copies;
use std::cell::RefCell;
use std::collections::HashMap;
use trodden_flow::selective_inlining::VersionKind;

/// How the code of a version learns in what context it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextSource {
    /// Not at all: no call on a segment leads to it.
    None,
    /// From the thread-local variable.
    Variable,
    /// From its last argument.
    Argument,
}

/// A version of a function.
pub struct SegmentVersion {
    /// Its code.
    pub code: Value,
    /// How it learns its context.
    pub context_source: ContextSource,
    /// Its description.
    pub cfg: FunctionCfg,
    /// What it is for.
    pub kind: VersionKind,
    /// What became of the function's instructions, of a copy.
    pub copies: Option<Copies>,
    /// The versions that it calls, by the function's own call and the callee's number in the set.
    pub targets: HashMap<(Value, u32), VersionTarget>,
    /// Calls that are to be made.
    pub passings: RefCell<Vec<Passing>>,
}

/// A version that is called.
#[derive(Clone, Copy)]
pub struct VersionTarget {
    /// Its code.
    pub version: Value,
    /// The function with which a pointer is compared, if the callee is behind one.
    pub guard: Option<Value>,
}

impl SegmentVersion {
    /// The version's own form of a call of the function.
    pub fn call(&self, call: Value) -> Value {
        self.copies.as_ref().map_or(call, |copies| copies.value(call))
    }

    /// Notes that a call passes a context to a version of its callee; false if the callee reads the variable.
    pub fn passes(&self, call: Value, callee: u32, context: Value) -> bool {
        let Some(target) = self.targets.get(&(call, callee)) else { return false };
        let passing = Passing { call: self.call(call), guard: target.guard, version: target.version, context };
        self.passings.borrow_mut().push(passing);
        true
    }

    /// Makes the calls that were noted.
    pub fn make_calls(&self, module: Module) {
        calls::make(module, &self.passings.take());
    }
}
