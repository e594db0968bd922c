//! Pass: moves the count at the end of a path to the edges into a node from which only one path continues, if the register has different
//! values on these edges.
//!
//! On these edges the counters' addresses are constants, so the register does not have to be set. Besides, the node does not grow, so the
//! code generator still duplicates it if it is small (as it does with an interpreter's indirect branch).
//!
//! Counts of a block that only returns the result of a tail call must always be moved: the callee may not return, and the path ends at the
//! call.

use super::code::{EdgeCode, ProgramGraphs};
use super::operation::{Operation, constant_register_value};
use super::{BlockProperties, EarlyCounting};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Node};

/// Moves the chosen counts from a node's out-edge to its in-edges. Visits nodes in reverse topological order, so that a count can move
/// repeatedly.
pub fn move_counts_early(
    frame: &ProgramGraphs,
    code: &mut EdgeCode,
    frequencies: &Frequencies,
    blocks: &BlockProperties,
    which: EarlyCounting,
) {
    if which == EarlyCounting::Never {
        return;
    }
    let if_profitable = which == EarlyCounting::IfProfitable;
    let graph = &frame.graph;
    let known = find_register_constants(frame, code);
    let in_loops: Vec<Node> = code.loops.iter().flat_map(|l| l.nodes.iter().copied()).collect();
    for &node in frame.order.iter().rev().filter(|n| **n != graph.entry()) {
        let mut out = code.live_edges(graph.out(node));
        let (Some(end), None) = (out.next(), out.next()) else { continue };
        drop(out);
        let Some(count) = count_at_end(code.operations_on(end)) else { continue };
        let into: Vec<Edge> = code.live_edges(graph.incoming(node)).collect();
        let is_possible = blocks.quiet.contains(node)
            && !in_loops.contains(&node)
            && graph.to(end) != node
            && into.iter().all(|e| blocks.can_carry_code.contains(*e) && !counts_continuing_path(code.operations_on(*e)));
        if is_possible
            && (blocks.must_count_early.contains(node) || (if_profitable && is_profitable(code, &into, &known, frequencies, blocks)))
        {
            let set = constant_register_value(code.operations_on(end)).map_or(Operation::Discard, Operation::Set);
            code.operations[end.index()] = vec![set];
            into.iter().for_each(|e| code.operations[e.index()].push(count));
        }
    }
}

/// Returns the operation that counts the path that ends with these operations, or `None` if they do not end a path.
fn count_at_end(operations: &[Operation]) -> Option<Operation> {
    match operations {
        [count @ (Operation::Count { .. } | Operation::Check { .. })] => Some(*count),
        [count @ (Operation::Count { .. } | Operation::Check { .. }), Operation::Set(_)] => Some(*count),
        [Operation::Add(before), Operation::Count { increment }] => Some(Operation::Count { increment: before.wrapping_add(*increment) }),
        [Operation::Add(before), Operation::Check { increment }] => Some(Operation::Check { increment: before.wrapping_add(*increment) }),
        _ => None,
    }
}

fn counts_continuing_path(operations: &[Operation]) -> bool {
    matches!(operations.last(), Some(Operation::Count { .. } | Operation::Check { .. }))
}

/// Returns whether counts on the edges into a node cost less than a single count after the node. For a single count, each edge with a
/// constant must set the register; counts on the edges may require jumps.
fn is_profitable(code: &EdgeCode, into: &[Edge], known: &[Option<i64>], frequencies: &Frequencies, blocks: &BlockProperties) -> bool {
    let differ = into.iter().any(|e| known[e.index()].is_none() || known[e.index()] != known[into[0].index()]);
    let sum = |edges: &dyn Fn(&&Edge) -> bool| into.iter().filter(|e| edges(e)).map(|e| frequencies.edge(*e)).sum::<f64>();
    let constant = sum(&|e| known[e.index()].is_some());
    let jumps = sum(&|e| !blocks.carries_code_for_free.contains(**e) && !code.has_code(**e));
    into.len() > 1 && differ && jumps < constant
}

/// Returns the register's value after each edge, or `None` if different paths have different values.
fn find_register_constants(frame: &ProgramGraphs, code: &EdgeCode) -> Vec<Option<i64>> {
    let graph = &frame.graph;
    let mut known: Vec<Option<i64>> = graph.edges().map(|e| constant_register_value(code.operations_on(e))).collect();
    for &node in &frame.order {
        let mut into = code.live_edges(graph.incoming(node)).map(|e| known[e.index()]);
        let arriving = match (node == graph.entry(), into.next().flatten()) {
            (true, _) => Some(0),
            (false, first) => first.filter(|_| into.all(|k| k == first)),
        };
        for &edge in graph.out(node) {
            match code.operations_on(edge) {
                [] => known[edge.index()] = arriving,
                [Operation::Add(increment)] => known[edge.index()] = arriving.map(|a| a.wrapping_add(*increment)),
                _ => {}
            }
        }
    }
    known
}
