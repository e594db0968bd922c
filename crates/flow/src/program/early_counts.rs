//! Pass: counts paths on the edges into a node from which one path leads to the end, if the register has different values on these edges.
//!
//! The counters' addresses are constants there, so no register has to be set, and the node keeps its size (which decides whether a code
//! generator duplicates it, as it does with the indirect branch of an interpreter).
//!
//! Some counts must be moved, whatever the cost: those of a block that only returns the result of a tail call. The callee may never
//! return, and the path ends where it is called.

use super::BlockProperties;
use super::code::{Code, ProgramFrame};
use super::operation::{Operation, value_set};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Node};

/// Moves counts to the edges into the node before them: `wherever` that pays, or only where it is necessary. Nodes are visited from the
/// ends of paths backwards, so that a count moves as far as it pays. Linear in the size of the graph.
pub fn run(frame: &ProgramFrame, code: &mut Code, frequencies: &Frequencies, blocks: &BlockProperties, wherever: bool) {
    let graph = &frame.graph;
    let known = constants(frame, code);
    let in_loops: Vec<Node> = code.loops.iter().flat_map(|l| l.nodes.iter().copied()).collect();
    for &node in frame.order.iter().rev().filter(|n| **n != graph.entry()) {
        let mut out = code.live(graph.out(node));
        let (Some(end), None) = (out.next(), out.next()) else { continue };
        drop(out);
        let Some(count) = count_at_end(code.on(end)) else { continue };
        let into: Vec<Edge> = code.live(graph.incoming(node)).collect();
        let can = blocks.quiet[node.index()]
            && !in_loops.contains(&node)
            && graph.to(end) != node
            && into.iter().all(|e| blocks.can_carry_code[e.index()] && !counts_continuing_path(code.on(*e)));
        if can && (blocks.must_count_early[node.index()] || (wherever && pays(code, &into, &known, frequencies, blocks))) {
            let set = value_set(code.on(end)).map_or(Operation::Discard, Operation::Set);
            code.operations[end.index()] = vec![set];
            into.iter().for_each(|e| code.operations[e.index()].push(count));
        }
    }
}

/// The operation that counts a path at the beginning of these operations, if they end the path.
fn count_at_end(operations: &[Operation]) -> Option<Operation> {
    match operations {
        [count @ (Operation::Count { .. } | Operation::Check { .. })] => Some(*count),
        [count @ (Operation::Count { .. } | Operation::Check { .. }), Operation::Set(_)] => Some(*count),
        [Operation::Add(before), Operation::Count { increment }] => Some(Operation::Count { increment: before.wrapping_add(*increment) }),
        [Operation::Add(before), Operation::Check { increment }] => Some(Operation::Check { increment: before.wrapping_add(*increment) }),
        _ => None,
    }
}

/// Whether an edge counts the path that continues after it.
fn counts_continuing_path(operations: &[Operation]) -> bool {
    matches!(operations.last(), Some(Operation::Count { .. } | Operation::Check { .. }))
}

/// Whether counts on these edges cost less than one after their common head. There, each edge with a constant has to set the register;
/// here, edges that cannot carry code may need a jump.
fn pays(code: &Code, into: &[Edge], known: &[Option<i64>], frequencies: &Frequencies, blocks: &BlockProperties) -> bool {
    let differ = into.iter().any(|e| known[e.index()].is_none() || known[e.index()] != known[into[0].index()]);
    let sum = |edges: &dyn Fn(&&Edge) -> bool| into.iter().filter(|e| edges(e)).map(|e| frequencies.edge(*e)).sum::<f64>();
    let constant = sum(&|e| known[e.index()].is_some());
    let jumps = sum(&|e| !blocks.carries_code_for_free[e.index()] && !code.has_code(**e));
    into.len() > 1 && differ && jumps < constant
}

/// The register's value after each edge, where all paths agree on it.
fn constants(frame: &ProgramFrame, code: &Code) -> Vec<Option<i64>> {
    let graph = &frame.graph;
    let mut known: Vec<Option<i64>> = graph.edges().map(|e| value_set(code.on(e))).collect();
    for &node in &frame.order {
        let mut into = code.live(graph.incoming(node)).map(|e| known[e.index()]);
        let arriving = match (node == graph.entry(), into.next().flatten()) {
            (true, _) => Some(0),
            (false, first) => first.filter(|_| into.all(|k| k == first)),
        };
        for &edge in graph.out(node) {
            match code.on(edge) {
                [] => known[edge.index()] = arriving,
                [Operation::Add(increment)] => known[edge.index()] = arriving.map(|a| a.wrapping_add(*increment)),
                _ => {}
            }
        }
    }
    known
}
