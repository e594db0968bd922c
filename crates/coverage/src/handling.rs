//! Finds where an exception is caught. In optimised code, the cleanups and handlers of inlined functions are linked to those of the
//! functions that they were inlined into.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Node;
use trodden_profile::FunctionPaths;
use trodden_report::Function;
use trodden_unit::{EdgeKind, FunctionMap};

/// What happens to an exception after it leaves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    Passed,
    /// This inlining scope catches the exception and continues.
    Caught(u32),
    /// Executions differ in what happened, or the handler's block has code from several scopes.
    Unknown,
}

/// Follows executed edges from a landing pad to the handlers that catch the exception or the exits through which it leaves the function.
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
            caught.insert(scope_of_block(function, block));
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

fn begins_handler(map: &FunctionMap, block: Node) -> bool {
    map.calls.iter().any(|call| call.block == block && call.callee.as_deref() == Some("__cxa_begin_catch"))
}

/// Returns the inlining scope of a block's code; `None` if the block has no code or code from several scopes.
fn scope_of_block(function: &Function, block: Node) -> Option<u32> {
    let block = function.map.blocks.get(block.index())?;
    let mut scopes: BTreeSet<u32> = block.positions.iter().map(|position| position.scope).collect();
    let scope = scopes.pop_first()?;
    scopes.is_empty().then_some(scope)
}
