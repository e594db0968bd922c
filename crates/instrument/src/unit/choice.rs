//! Chooses the functions to instrument, and gives a reason for each one left out.

use crate::llvm::{Module, Value};
use crate::no_return::is_definition;
use indexmap::IndexSet;
use llvm_sys::{LLVMLinkage, LLVMOpcode};
use trodden_unit::Skipped;

/// x86's calling convention for interrupt handlers.
const X86_INTERRUPT_CONVENTION: u32 = 83;

/// Returns the functions that can be instrumented, and the others with the reasons.
pub fn choose_instrumentable(module: Module) -> (Vec<Value>, Vec<Skipped>) {
    let early = find_functions_run_before_relocation(module);
    let (mut chosen, mut skipped) = (Vec::new(), Vec::new());
    for function in module.functions().filter(|f| is_emitted(*f)) {
        match reason_to_skip_function(function, &early) {
            None => chosen.push(function),
            Some(reason) => skipped.push(Skipped { name: function.name(), reason: reason.into() }),
        }
    }
    (chosen, skipped)
}

/// Returns true if this module emits code for the function's body.
pub fn is_emitted(function: Value) -> bool {
    is_definition(function) && function.linkage() != LLVMLinkage::LLVMAvailableExternallyLinkage
}

fn reason_to_skip_function(function: Value, early: &IndexSet<Value>) -> Option<&'static str> {
    let attributes = [
        ("naked", "it is written in assembly (`naked`)"),
        ("noprofile", "the source asks for it (`no_profile_instrument_function`)"),
        ("skipprofile", "the source asks for it (`skipprofile`)"),
        ("presplitcoroutine", "it is a coroutine that the compiler has not split"),
    ];
    if let Some((_, reason)) = attributes.into_iter().find(|(name, _)| function.has_attribute(name)) {
        return Some(reason);
    }
    if function.convention() == X86_INTERRUPT_CONVENTION {
        return Some("it is an interrupt handler");
    }
    if early.contains(&function) {
        return Some("it runs while the program is being relocated (it is an ifunc resolver or called by one)");
    }
    // Only functions with a personality have funclets. Checking for it saves scanning most functions.
    if !function.has_personality() {
        return None;
    }
    let funclet = |i: Value| matches!(i.opcode(), LLVMOpcode::LLVMCatchSwitch | LLVMOpcode::LLVMCatchPad | LLVMOpcode::LLVMCleanupPad);
    function.blocks().any(|b| b.instructions().any(funclet)).then_some("it handles exceptions with funclets")
}

/// Returns ifunc resolvers and the functions that they call, directly or indirectly. These run before the program is relocated and
/// thread-local storage is set up.
fn find_functions_run_before_relocation(module: Module) -> IndexSet<Value> {
    let mut early = IndexSet::new();
    let mut stack: Vec<Value> = module.ifunc_resolvers().collect();
    while let Some(function) = stack.pop() {
        if function.is_function() && early.insert(function) {
            let calls = function.blocks().flat_map(|b| b.instructions().filter(|i| i.is_call()).map(Value::callee).collect::<Vec<_>>());
            stack.extend(calls);
        }
    }
    early
}
