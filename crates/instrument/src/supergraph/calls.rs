//! Calls with a context: a call of a function becomes one of a version of it that takes the context as its last argument.
//!
//! Where the callee is behind a pointer, the call becomes a guarded direct call for each function that is expected, and stays for all
//! others (after Calder and Grunwald, "Reducing indirect function call overhead in C++ programs", POPL 1994):
//!
//! ```text
//!   x = call p(a)       if (p == f) x = call f.version(a, context) else x = call p(a)
//! ```

use crate::attributes;
use crate::describe::is_must_tail;
use crate::llvm::{Block, Builder, Module, Value, llvm, metadata_kind};
use crate::phis;
use crate::shape::{new_block_behind, split_off_behind};
use indexmap::IndexMap;
use llvm_sys::core::*;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode};
use std::collections::HashMap;

/// A call that is to be one of a version.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// The call.
    pub call: Value,
    /// What the pointer is compared with, if the callee is behind one.
    pub guard: Option<Value>,
    /// The version.
    pub version: Value,
    /// The number that it takes.
    pub context: Value,
}

/// Attributes of calls that do not hold of versions.
const DROPPED: [&str; 2] = ["memory", "noinline"];

/// Whether a call, by name or behind a pointer, can be made one of a version of a function.
pub fn can_pass(call: Value, function: Value) -> bool {
    let is_plain = call.is(LLVMOpcode::LLVMCall);
    let same_type = llvm!(LLVMGetCalledFunctionType(call.0)) == llvm!(LLVMGlobalGetValueType(function.0));
    let convention = llvm!(LLVMGetInstructionCallConv(call.0)) == llvm!(LLVMGetFunctionCallConv(function.0));
    (is_plain || call.is(LLVMOpcode::LLVMInvoke))
        && !is_must_tail(call)
        && same_type
        && convention
        && llvm!(LLVMGetNumOperandBundles(call.0)) == 0
}

/// Makes the calls.
pub fn make(module: Module, passings: &[Passing]) {
    let mut by_call: IndexMap<Value, Vec<Passing>> = IndexMap::new();
    passings.iter().for_each(|p| by_call.entry(p.call).or_default().push(*p));
    // Phi nodes that were rebuilt, of which a context may be one.
    let mut replaced: HashMap<Value, Value> = HashMap::new();
    for (call, mut passings) in by_call {
        for context in passings.iter_mut().map(|passing| &mut passing.context) {
            while let Some(new) = replaced.get(context) {
                *context = *new;
            }
        }
        match passings.iter().find(|p| p.guard.is_none()) {
            Some(direct) => {
                let builder = Builder::before(module, call, call.location());
                let new = with_context(&builder, *direct);
                if !call.is_void() {
                    call.replace_uses(new);
                }
                // SAFETY: the passings of a call are taken together, and no others name it.
                unsafe { call.erase() };
            }
            None => replaced.extend(guard(module, call, &passings)),
        }
    }
}

/// Makes a call behind a pointer one of guarded direct calls. Gives phi nodes that were rebuilt, with the new ones.
fn guard(module: Module, call: Value, passings: &[Passing]) -> Vec<(Value, Value)> {
    let (before, location) = (call.block(), call.location());
    let mut block = before;
    let unwinds = call.is(LLVMOpcode::LLVMInvoke).then(|| Block(llvm!(LLVMGetUnwindDest(call.0))));
    let (rest, mut replaced) = match unwinds {
        Some(_) => between(module, call),
        None => (split_off_behind(module, call), Vec::new()),
    };
    let mut values: Vec<(Value, Block)> = Vec::new();
    llvm!(LLVMInstructionRemoveFromParent(call.0));
    for passing in passings {
        let (other, direct) = (new_block_behind(module, block), new_block_behind(module, block));
        let builder = Builder::at_end(module, block, location);
        let function = passing.guard.expect("a call by name has one callee");
        builder.branch(builder.equal(call.callee(), function), direct, other);
        let builder = Builder::at_end(module, direct, location);
        let new = with_context(&builder, *passing);
        if unwinds.is_none() {
            builder.jump(rest);
        }
        values.push((new, direct));
        block = other;
    }
    let builder = Builder::at_end(module, block, location);
    builder.insert(call);
    call.set_location(location);
    match unwinds {
        Some(pad) => replaced.extend(phis::rebuild(module, pad, |entries| {
            // What came from the one call comes from each of them.
            let from = |(value, from): (Value, Block)| match from == before {
                true => values.iter().map(|(_, direct)| (value, *direct)).chain([(value, block)]).collect(),
                false => vec![(value, from)],
            };
            entries.into_iter().flat_map(from).collect()
        })),
        None => builder.jump(rest),
    }
    if !call.is_void() && call.users().next().is_some() {
        let phi = Builder::phi_at_top(module, rest, call.kind(), location);
        call.replace_uses(phi);
        values.push((call, block));
        phi.add_incoming(&values);
    }
    replaced
}

/// A block of its own between a call that may throw and where it returns to, for all calls in its place. Gives phi nodes that were made
/// again, too.
fn between(module: Module, call: Value) -> (Block, Vec<(Value, Value)>) {
    let (block, then) = (call.block(), Block(llvm!(LLVMGetNormalDest(call.0))));
    let rest = new_block_behind(module, block);
    Builder::at_end(module, rest, call.location()).jump(then);
    let renamed = phis::rename(module, then, block, rest);
    llvm!(LLVMSetNormalDest(call.0, rest.0));
    (rest, renamed)
}

/// The call of a version.
fn with_context(builder: &Builder, passing: Passing) -> Value {
    let Passing { call, version, context, .. } = passing;
    let arguments: Vec<Value> = call.arguments().chain([context]).collect();
    let count = arguments.len() as u32;
    let new = if call.is(LLVMOpcode::LLVMInvoke) {
        let (then, unwind) = (llvm!(LLVMGetNormalDest(call.0)), llvm!(LLVMGetUnwindDest(call.0)));
        let (kind, mut arguments) = (llvm!(LLVMGlobalGetValueType(version.0)), arguments.iter().map(|a| a.0).collect::<Vec<_>>());
        Value(llvm!(LLVMBuildInvoke2(builder.raw(), kind, version.0, arguments.as_mut_ptr(), count, then, unwind, c"".as_ptr())))
    } else {
        let new = builder.call(version, &arguments);
        llvm!(LLVMSetTailCallKind(new.0, llvm!(LLVMGetTailCallKind(call.0))));
        new
    };
    llvm!(LLVMSetInstructionCallConv(new.0, llvm!(LLVMGetInstructionCallConv(call.0))));
    for index in (0..count).chain([LLVMAttributeFunctionIndex]) {
        attributes::of_call(call, index).into_iter().for_each(|a| llvm!(LLVMAddCallSiteAttribute(new.0, index, a)));
    }
    DROPPED.iter().for_each(|name| attributes::remove_from_call(new, name));
    // What a branch of the call weighs is what is still true of it.
    if let Some(weights) = call.metadata("prof").filter(|_| call.is(LLVMOpcode::LLVMInvoke)) {
        llvm!(LLVMSetMetadata(new.0, metadata_kind(builder.module.context(), "prof"), weights.0));
    }
    new
}
