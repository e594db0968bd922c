//! The functions that a module calls directly, with the number of call sites. Partitioned path profiling uses them to decide which
//! procedures may be partitioned.
//!
//! Source: Afraz, Saha and Kanade, "P3: partitioned path profiling" (ESEC/FSE 2015), section 4.1. As there, indirect calls have no known
//! callee. Only the unit that defines an alias knows its target, so aliases are recorded alongside the calls.

use crate::llvm::{Block, Module, Value};
use trodden_flow::Node;
use trodden_unit::{Alias, BlockCall, Callee};

/// Returns the functions that the module calls. Must run before probes are inserted, since these call functions too.
pub fn callees_of_module(module: Module) -> Vec<Callee> {
    // Following use lists is faster than scanning all instructions.
    let functions = module.functions().filter(|function| function.intrinsic_id() == 0).chain(module.aliases());
    let called = functions.map(|callee| (callee, callee.calls().count() as u32)).filter(|(_, sites)| *sites > 0);
    let mut callees: Vec<Callee> = called.map(|(callee, sites)| Callee { name: callee.name(), sites }).collect();
    callees.sort_by(|a, b| a.name.cmp(&b.name));
    // All functions without a name share one entry.
    callees.dedup_by(|next, first| {
        let same = next.name == first.name;
        first.sites += if same { next.sites } else { 0 };
        same
    });
    callees
}

/// Returns the calls of a block, with one entry for each distinct callee.
pub fn callees_of_block(block: Block, number: Node) -> Vec<BlockCall> {
    let mut found = Vec::new();
    for called in block.instructions().filter(|i| i.is_call()).map(Value::callee) {
        let function = resolve_alias(called);
        if called.is_assembly() || function.is_some_and(|f| f.intrinsic_id() != 0) {
            continue;
        }
        let call = BlockCall { block: number, callee: function.map(Value::name) };
        if !found.contains(&call) {
            found.push(call);
        }
    }
    found
}

pub fn aliases_of_module(module: Module) -> Vec<Alias> {
    module.aliases().filter_map(|alias| Some(Alias { name: alias.name(), of: resolve_alias(alias)?.name() })).collect()
}

/// Resolves an alias, or a chain of aliases, to its function; `None` if the target is not a function. LLVM rules out cycles.
pub fn resolve_alias(alias: Value) -> Option<Value> {
    let mut value = alias;
    while let Some(aliasee) = value.aliasee() {
        value = aliasee;
    }
    value.is_function().then_some(value)
}
