//! A version of a function: its code, the source of its first path's context, and the versions it calls.

use super::calls::{self, CallRedirection};
use crate::describe::FunctionCfg;
use crate::llvm::{Module, Value};
use crate::versions::copies::CopyMapping;
use std::cell::RefCell;
use std::collections::HashMap;
use trodden_flow::selective_inlining::VersionKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextSource {
    /// None: no call on a segment leads to the version.
    None,
    Word,
    Argument,
}

pub struct SegmentVersion {
    pub code: Value,
    pub context_source: ContextSource,
    pub cfg: FunctionCfg,
    pub kind: VersionKind,
    /// The mapping from the original to a copy; `None` for the original.
    pub copies: Option<CopyMapping>,
    /// The versions that this version calls, by the original's call and the callee's number in the set.
    pub targets: HashMap<(Value, u32), VersionTarget>,
    pub redirections: RefCell<Vec<CallRedirection>>,
}

#[derive(Clone, Copy)]
pub struct VersionTarget {
    pub version: Value,
    /// The function to compare the pointer with, if the call is indirect.
    pub guard: Option<Value>,
}

impl SegmentVersion {
    /// Returns the version's copy of one of the function's calls.
    pub fn call(&self, call: Value) -> Value {
        self.copies.as_ref().map_or(call, |copies| copies.value(call))
    }

    /// Records that a call passes a context to a version of its callee. Returns false if the callee reads the thread-local word instead.
    pub fn passes(&self, call: Value, callee: u32, context: Value) -> bool {
        let Some(target) = self.targets.get(&(call, callee)) else { return false };
        let redirection = CallRedirection { call: self.call(call), guard: target.guard, version: target.version, context };
        self.redirections.borrow_mut().push(redirection);
        true
    }

    pub fn redirect_calls(&self, module: Module) {
        calls::redirect(module, &self.redirections.take());
    }
}
