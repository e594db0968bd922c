//! A version of a function for counting segments: its code, where its first path's context comes from, and which versions it calls.

use super::calls::{self, CallRedirection};
use crate::describe::FunctionCfg;
use crate::llvm::{Module, Value};
use crate::versions::copies::CopyMapping;
use std::cell::RefCell;
use std::collections::HashMap;
use trodden_flow::selective_inlining::VersionKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextSource {
    /// The function gets no context, because no call that belongs to a segment leads to this version.
    None,
    Word,
    Argument,
}

pub struct SegmentVersion {
    pub code: Value,
    pub context_source: ContextSource,
    pub cfg: FunctionCfg,
    pub kind: VersionKind,
    /// The copied blocks and values; `None` for the original.
    pub copies: Option<CopyMapping>,
    /// The versions that this version calls, by the call in the original and the callee's number in the set of segments.
    pub targets: HashMap<(Value, u32), VersionTarget>,
    pub redirections: RefCell<Vec<CallRedirection>>,
}

#[derive(Clone, Copy)]
pub struct VersionTarget {
    pub version: Value,
    /// The function with which the pointer is compared, if the call is indirect.
    pub guard: Option<Value>,
}

impl SegmentVersion {
    /// Returns this version's copy of a call in the original.
    pub fn call(&self, call: Value) -> Value {
        self.copies.as_ref().map_or(call, |copies| copies.value(call))
    }

    /// If a call leads to a version that takes the context as an argument, records that it passes `context`. Returns false if the callee
    /// reads the thread-local word instead.
    pub fn record_context(&self, call: Value, callee: u32, context: Value) -> bool {
        let Some(target) = self.targets.get(&(call, callee)) else { return false };
        let redirection = CallRedirection { call: self.call(call), guard: target.guard, version: target.version, context };
        self.redirections.borrow_mut().push(redirection);
        true
    }

    pub fn redirect_calls(&self, module: Module) {
        calls::redirect_calls(module, &self.redirections.take());
    }
}
