//! Finds the function that catches an exception. This is not obvious in optimised code, where the cleanups and handlers of inlined
//! functions are chained to those of the functions around them.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Node;
use trodden_profile::FunctionPaths;
use trodden_report::Function;
use trodden_unit::{EdgeKind, FunctionMap};

/// What happens to an exception that a call throws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandingPadHandling {
    Passed,
    /// The code of this inlining scope (a function and the call that it was inlined at) catches the exception and continues.
    Caught(u32),
    /// It differs between executions, or the handler's block has code from several scopes.
    Unknown,
}

/// Determines what happens to exceptions that reach a landing pad. Follows executed edges to the handlers that catch the exceptions, or to
/// the exits through which they leave the function.
pub fn find_handling(function: &Function, paths: &FunctionPaths, landing: Node) -> LandingPadHandling {
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
                EdgeKind::Return | EdgeKind::TailCall => return LandingPadHandling::Unknown,
                _ => open.extend(met.insert(*to).then_some(*to)),
            }
        }
    }
    match (caught.pop_first(), is_passed) {
        (None, true) => LandingPadHandling::Passed,
        (Some(Some(scope)), false) if caught.is_empty() => LandingPadHandling::Caught(scope),
        _ => LandingPadHandling::Unknown,
    }
}

fn begins_handler(map: &FunctionMap, block: Node) -> bool {
    map.calls.iter().any(|call| call.block == block && call.callee.as_deref() == Some("__cxa_begin_catch"))
}

/// Returns the inlining scope to which a block's code belongs; `None` if the block has no code, or code from several scopes.
fn scope_of_block(function: &Function, block: Node) -> Option<u32> {
    let block = function.map.blocks.get(block.index())?;
    let mut scopes: BTreeSet<u32> = block.positions.iter().map(|position| position.scope).collect();
    let scope = scopes.pop_first()?;
    scopes.is_empty().then_some(scope)
}
