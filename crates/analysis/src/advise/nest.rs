//! Finds the natural loops of a function.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{CutReason, Node};
use trodden_unit::{EdgeKind, FunctionMap};

/// Returns the blocks of each natural loop by its head. A cycle with an entry other than its head is not a natural loop and is omitted.
pub fn natural_loops(map: &FunctionMap) -> BTreeMap<Node, BTreeSet<Node>> {
    let mut before: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    map.graph.flow_edges().filter(|e| e.kind != EdgeKind::Reach).for_each(|e| before.entry(e.to).or_default().push(e.from));
    let mut back: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    for (edge, _) in map.cuts.iter().filter(|(_, reason)| *reason == CutReason::Back) {
        let edge = map.graph.edge(*edge);
        back.entry(edge.to).or_default().push(edge.from);
    }
    let has_single_entry = |head: Node, body: &BTreeSet<Node>| head == Node(0) || !body.contains(&Node(0));
    back.into_iter()
        .map(|(head, from)| (head, loop_body(head, from, &before)))
        .filter(|(head, body)| has_single_entry(*head, body))
        .collect()
}

/// Returns the blocks of a natural loop: its head, and all blocks that reach a latch without passing through the head. `stack` initially
/// holds the latches.
fn loop_body(head: Node, mut stack: Vec<Node>, before: &BTreeMap<Node, Vec<Node>>) -> BTreeSet<Node> {
    let mut body = BTreeSet::from([head]);
    while let Some(block) = stack.pop() {
        if body.insert(block) {
            stack.extend(before.get(&block).into_iter().flatten());
        }
    }
    body
}

/// Returns true if a loop contains `to` but not `from`. On a path through both, `to` is then in the loop's first iteration.
pub fn enters_loop(loops: &BTreeMap<Node, BTreeSet<Node>>, from: Node, to: Node) -> bool {
    loops.values().any(|body| body.contains(&to) && !body.contains(&from))
}
