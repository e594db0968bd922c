//! The loops of a function: natural loops of the edges that were cut as back edges.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{CutReason, Node};
use trodden_unit::{EdgeKind, FunctionMap};

/// The blocks of each loop by its head. A cycle with an entry besides its head is no natural loop and is left out.
pub fn loops(map: &FunctionMap) -> BTreeMap<Node, BTreeSet<Node>> {
    let mut before: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    map.edges.iter().filter(|e| e.kind != EdgeKind::Reach).for_each(|e| before.entry(e.to).or_default().push(e.from));
    let mut back: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    for (edge, _) in map.cuts.iter().filter(|(_, reason)| *reason == CutReason::Back) {
        let edge = &map.edges[edge.index()];
        back.entry(edge.to).or_default().push(edge.from);
    }
    let whole = |head: Node, body: &BTreeSet<Node>| head == Node(0) || !body.contains(&Node(0));
    back.into_iter().map(|(head, from)| (head, body(head, from, &before))).filter(|(head, body)| whole(*head, body)).collect()
}

/// The blocks that reach the latches without passing through the head.
fn body(head: Node, mut stack: Vec<Node>, before: &BTreeMap<Node, Vec<Node>>) -> BTreeSet<Node> {
    let mut body = BTreeSet::from([head]);
    while let Some(block) = stack.pop() {
        if body.insert(block) {
            stack.extend(before.get(&block).into_iter().flatten());
        }
    }
    body
}

/// Whether a block is in a loop that another block is not in. On a path with both, the block is then executed in the loop's first
/// iteration.
pub fn enters_loop(loops: &BTreeMap<Node, BTreeSet<Node>>, from: Node, to: Node) -> bool {
    loops.values().any(|body| body.contains(&to) && !body.contains(&from))
}
