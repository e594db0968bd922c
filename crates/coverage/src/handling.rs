//! Finds where an exception is caught. In optimised code, the cleanups and handlers of inlined functions and their callers are chained.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Node;
use trodden_profile::FunctionPaths;
use trodden_report::Function;
use trodden_unit::{EdgeKind, FunctionMap};

/// What happens to an exception that leaves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The exception leaves the function.
    Passed,
    /// Code of this scope catches the exception, and execution continues there.
    Caught(u32),
    /// The exception had several outcomes, or the handler's block has code of several scopes.
    Unknown,
}

/// Follows the executed blocks from a landing pad to the blocks where exceptions are caught or leave the function.
pub fn find_handling(function: &Function, paths: &FunctionPaths, landing: Node) -> Handling {
    let map = function.map;
    let mut executed: BTreeMap<Node, Vec<(EdgeKind, Node)>> = BTreeMap::new();
    for (edge, _) in map.graph.flow_edges().zip(&paths.edges).filter(|(edge, count)| **count > 0 && edge.kind != EdgeKind::Reach) {
        executed.entry(edge.from).or_default().push((edge.kind, edge.to));
    }
    let (mut met, mut open) = (BTreeSet::from([landing]), vec![landing]);
    let (mut caught, mut is_passed) = (BTreeSet::new(), false);
    while let Some(block) = open.pop() {
        if begins_handler(map, block) {
            caught.insert(only_scope(function, block));
            continue;
        }
        for (kind, to) in executed.get(&block).into_iter().flatten() {
            match kind {
                EdgeKind::Resume | EdgeKind::NoReturn => is_passed = true,
                EdgeKind::Return | EdgeKind::TailCall => return Handling::Unknown,
                _ => open.extend(met.insert(*to).then_some(*to)),
            }
        }
    }
    match (caught.pop_first(), is_passed) {
        (None, true) => Handling::Passed,
        (Some(Some(scope)), false) if caught.is_empty() => Handling::Caught(scope),
        _ => Handling::Unknown,
    }
}

/// Returns true if a block begins a C++ exception handler.
fn begins_handler(map: &FunctionMap, block: Node) -> bool {
    map.calls.iter().any(|call| call.block == block && call.callee.as_deref() == Some("__cxa_begin_catch"))
}

/// The scope of a block's code; `None` if there are several, or no code.
fn only_scope(function: &Function, block: Node) -> Option<u32> {
    let block = function.map.blocks.get(block.index())?;
    let mut scopes: BTreeSet<u32> = block.positions.iter().map(|position| position.scope).collect();
    let scope = scopes.pop_first()?;
    scopes.is_empty().then_some(scope)
}
