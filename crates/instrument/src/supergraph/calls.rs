//! Redirects calls: instead of a function, they call a version of it that takes the context as its last argument.
//!
//! An indirect call becomes a guarded direct call for each expected callee, and remains for all others (after Calder and Grunwald,
//! "Reducing indirect function call overhead in C++ programs", POPL 1994): `if (p == f) f.version(a, context) else p(a)`.

use crate::describe::is_must_tail;
use crate::llvm::{Block, Builder, Module, Value};
use crate::phis;
use crate::shape::{move_rest_to_new_block, new_block_after};
use indexmap::IndexMap;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug)]
pub struct CallRedirection {
    pub call: Value,
    /// The function with which the pointer is compared, if the call is indirect.
    pub guard: Option<Value>,
    pub version: Value,
    /// The context to pass as the version's last argument.
    pub context: Value,
}

/// Attributes of a call that do not apply to a call to a version, because a version counts and may be inlined.
const ATTRIBUTES_DROPPED_FROM_CALLS: [&str; 2] = ["memory", "noinline"];

/// Returns true if a call to a function can be redirected to a version with an additional argument.
pub fn can_redirect(call: Value, function: Value) -> bool {
    let is_plain = call.is(LLVMOpcode::LLVMCall);
    let same_type = call.called_type() == function.value_type();
    let convention = call.call_convention() == function.convention();
    (is_plain || call.is(LLVMOpcode::LLVMInvoke)) && !is_must_tail(call) && same_type && convention && !call.has_operand_bundles()
}

pub fn redirect_calls(module: Module, redirections: &[CallRedirection]) {
    let mut by_call: IndexMap<Value, Vec<CallRedirection>> = IndexMap::new();
    redirections.iter().for_each(|p| by_call.entry(p.call).or_default().push(*p));
    // Deleted phi nodes and the rebuilt ones. A context may be one of them.
    let mut replaced: HashMap<Value, Value> = HashMap::new();
    for (call, mut redirections) in by_call {
        for context in redirections.iter_mut().map(|redirection| &mut redirection.context) {
            while let Some(new) = replaced.get(context) {
                *context = *new;
            }
        }
        match redirections.iter().find(|p| p.guard.is_none()) {
            Some(direct) => {
                let builder = Builder::before(module, call, call.location());
                let new = call_with_context(&builder, *direct);
                if !call.is_void() {
                    call.replace_uses(new);
                }
                // SAFETY: all redirections of this call are processed here, and no others refer to it.
                unsafe { call.erase() };
            }
            None => replaced.extend(replace_by_guarded_calls(module, call, &redirections)),
        }
    }
}

/// Turns an indirect call into guarded direct calls. Returns each deleted phi node with its replacement.
fn replace_by_guarded_calls(module: Module, call: Value, redirections: &[CallRedirection]) -> Vec<(Value, Value)> {
    let (before, location) = (call.block(), call.location());
    let mut block = before;
    let unwinds = call.is(LLVMOpcode::LLVMInvoke).then(|| call.unwind_destination());
    let (rest, mut replaced) = match unwinds {
        Some(_) => split_normal_edge(module, call),
        None => (move_rest_to_new_block(module, call), Vec::new()),
    };
    let mut values: Vec<(Value, Block)> = Vec::new();
    call.remove_from_block();
    for redirection in redirections {
        let (other, direct) = (new_block_after(module, block), new_block_after(module, block));
        let builder = Builder::at_end(module, block, location);
        let function = redirection.guard.expect("guarded calls are indirect");
        builder.branch(builder.equal(call.callee(), function), direct, other);
        let builder = Builder::at_end(module, direct, location);
        let new = call_with_context(&builder, *redirection);
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
        Some(pad) => replaced.extend(phis::rebuild_phis(module, pad, |entries| {
            // If control came from the block of the original call, it now comes from one of several calls, with the same value.
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

/// Inserts a block between an `invoke` and its normal destination, to which all calls that replace the `invoke` continue. Returns the
/// block, and each deleted phi node with its replacement.
fn split_normal_edge(module: Module, call: Value) -> (Block, Vec<(Value, Value)>) {
    let (block, then) = (call.block(), call.normal_destination());
    let rest = new_block_after(module, block);
    Builder::at_end(module, rest, call.location()).jump(then);
    let renamed = phis::rename_phi_predecessor(module, then, block, rest);
    call.set_normal_destination(rest);
    (rest, renamed)
}

fn call_with_context(builder: &Builder, redirection: CallRedirection) -> Value {
    let CallRedirection { call, version, context, .. } = redirection;
    let arguments: Vec<Value> = call.arguments().chain([context]).collect();
    let count = arguments.len() as u32;
    let new = if call.is(LLVMOpcode::LLVMInvoke) {
        builder.invoke(version, &arguments, call.normal_destination(), call.unwind_destination())
    } else {
        let new = builder.call(version, &arguments);
        new.set_tail_call_kind(call.tail_call_kind());
        new
    };
    new.set_call_convention(call.call_convention());
    for index in (0..count).chain([LLVMAttributeFunctionIndex]) {
        call.call_attributes_at(index).into_iter().for_each(|attribute| new.add_call_attribute_at(index, attribute));
    }
    ATTRIBUTES_DROPPED_FROM_CALLS.iter().for_each(|name| new.remove_call_attribute(name));
    // The branch weights of an `invoke` apply to its replacement, too.
    if let Some(weights) = call.metadata("prof").filter(|_| call.is(LLVMOpcode::LLVMInvoke)) {
        new.set_metadata(builder.module, "prof", Some(weights.as_metadata()));
    }
    new
}
