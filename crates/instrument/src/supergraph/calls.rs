//! Calls with a context: a call of a function becomes one of a version of it that takes the context as its last argument.
//!
//! Where the callee is behind a pointer, the call becomes a guarded direct call for each function that is expected, and stays for all
//! others (after Calder and Grunwald, "Reducing indirect function call overhead in C++ programs", POPL 1994):
//!
//! ```text
//!   x = call p(a)       if (p == f) x = call f.version(a, context) else x = call p(a)
//! ```

use super::attributes;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::phis;
use crate::shape::{new_block_behind, split_off_behind};
use indexmap::IndexMap;
use llvm_sys::core::*;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMIntPredicate, LLVMOpcode, LLVMTailCallKind};
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
    let is_must_tail = is_plain && llvm!(LLVMGetTailCallKind(call.0)) == LLVMTailCallKind::LLVMTailCallKindMustTail;
    let same_type = llvm!(LLVMGetCalledFunctionType(call.0)) == llvm!(LLVMGlobalGetValueType(function.0));
    let convention = llvm!(LLVMGetInstructionCallConv(call.0)) == llvm!(LLVMGetFunctionCallConv(function.0));
    (is_plain || call.is(LLVMOpcode::LLVMInvoke))
        && !is_must_tail
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
                let new = with_context(module, &builder, *direct);
                if !call.is_void() {
                    call.replace_uses(new);
                }
                call.erase();
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
        let is_called = builder.compare(LLVMIntPredicate::LLVMIntEQ, call.callee(), function);
        builder.branch(is_called, direct, other);
        let builder = Builder::at_end(module, direct, location);
        let new = with_context(module, &builder, *passing);
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
        let first = rest.instructions().next().expect("a block has a terminator");
        let phi = Builder::phi_before(module, first, call.kind(), location);
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
    let renamed = phis::rebuild(module, then, |entries| {
        entries.into_iter().map(|(value, from)| (value, if from == block { rest } else { from })).collect()
    });
    llvm!(LLVMSetNormalDest(call.0, rest.0));
    (rest, renamed)
}

/// The call of a version.
fn with_context(module: Module, builder: &Builder, passing: Passing) -> Value {
    let Passing { call, version, context, .. } = passing;
    let count = llvm!(LLVMGetNumArgOperands(call.0));
    let mut arguments: Vec<_> = (0..count).map(|i| llvm!(LLVMGetOperand(call.0, i))).chain([context.0]).collect();
    let (kind, number) = (llvm!(LLVMGlobalGetValueType(version.0)), arguments.len() as u32);
    let new = if call.is(LLVMOpcode::LLVMInvoke) {
        let (then, unwind) = (llvm!(LLVMGetNormalDest(call.0)), llvm!(LLVMGetUnwindDest(call.0)));
        llvm!(LLVMBuildInvoke2(builder.raw(), kind, version.0, arguments.as_mut_ptr(), number, then, unwind, c"".as_ptr()))
    } else {
        let new = llvm!(LLVMBuildCall2(builder.raw(), kind, version.0, arguments.as_mut_ptr(), number, c"".as_ptr()));
        llvm!(LLVMSetTailCallKind(new, llvm!(LLVMGetTailCallKind(call.0))));
        new
    };
    llvm!(LLVMSetInstructionCallConv(new, llvm!(LLVMGetInstructionCallConv(call.0))));
    for index in (0..=count).chain([LLVMAttributeFunctionIndex]) {
        attributes::of_call(call, index).into_iter().for_each(|a| llvm!(LLVMAddCallSiteAttribute(new, index, a)));
    }
    DROPPED.iter().for_each(|name| attributes::remove_from_call(Value(new), name));
    copy_metadata(module, call, Value(new));
    Value(new)
}

fn copy_metadata(module: Module, from: Value, to: Value) {
    // What a branch of the call weighs is what is still true of it.
    let kind = llvm!(LLVMGetMDKindIDInContext(module.context(), c"prof".as_ptr(), 4));
    let metadata = llvm!(LLVMGetMetadata(from.0, kind));
    if !metadata.is_null() && from.is(LLVMOpcode::LLVMInvoke) {
        llvm!(LLVMSetMetadata(to.0, kind, metadata));
    }
}
