//! Which functions a module calls by name, and from how many places: which procedures partitioned path profiling may divide depends on it.
//!
//! Source: Afraz, Saha and Kanade, "P3: partitioned path profiling" (ESEC/FSE 2015), section 4.1. An indirect call
//! names no function, as there. A call of an alias names a function that only the alias's own unit knows, so aliases are
//! noted beside the calls.

use crate::llvm::{Block, Module, Value, llvm};
use llvm_sys::core::*;
use trodden_flow::Node;
use trodden_unit::{Alias, BlockCall, Callee};

/// Callees of the module's code, as it is before anything is inserted.
pub fn of(module: Module) -> Vec<Callee> {
    // Uses lead to the calls, past all other instructions.
    let functions = module.functions().filter(|function| function.intrinsic() == 0).chain(all_aliases(module));
    let called = functions.map(|callee| (callee, callee.calls().count() as u32)).filter(|(_, sites)| *sites > 0);
    let mut callees: Vec<Callee> = called.map(|(callee, sites)| Callee { name: callee.name(), sites }).collect();
    callees.sort_by(|a, b| a.name.cmp(&b.name));
    // Functions without a name count as one.
    callees.dedup_by(|next, first| {
        let same = next.name == first.name;
        first.sites += if same { next.sites } else { 0 };
        same
    });
    callees
}

/// What a block calls, each callee once.
pub fn in_block(block: Block, number: Node) -> Vec<BlockCall> {
    let mut found = Vec::new();
    for called in block.instructions().filter(|i| i.is_call()).map(Value::callee) {
        let function = behind(called);
        if called.is_assembly() || function.is_some_and(|f| f.intrinsic() != 0) {
            continue;
        }
        let call = BlockCall { block: number, callee: function.map(Value::name) };
        if !found.contains(&call) {
            found.push(call);
        }
    }
    found
}

/// Aliases of the module's functions.
pub fn aliases(module: Module) -> Vec<Alias> {
    all_aliases(module).filter_map(|alias| Some(Alias { name: alias.name(), of: behind(alias)?.name() })).collect()
}

fn all_aliases(module: Module) -> impl Iterator<Item = Value> {
    let first = Value::some(llvm!(LLVMGetFirstGlobalAlias(module.raw)));
    std::iter::successors(first, |alias| Value::some(llvm!(LLVMGetNextGlobalAlias(alias.0))))
}

/// The function behind an alias, or behind an alias of one. There are no cycles of them.
pub fn behind(alias: Value) -> Option<Value> {
    let mut value = alias;
    while is_alias(value) {
        value = Value(llvm!(LLVMAliasGetAliasee(value.0)));
    }
    value.is_function().then_some(value)
}

fn is_alias(value: Value) -> bool {
    !llvm!(LLVMIsAGlobalAlias(value.0)).is_null()
}
