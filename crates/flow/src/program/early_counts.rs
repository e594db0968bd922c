//! Pass: where paths with different register values meet in a node from which one path leads to the end, the counts are
//! made on the edges into it. Their places in the array are constants there, so no register has to be set, and the node
//! keeps its size (which decides whether a code generator copies it, as it does with the indirect branch of an
//! interpreter).
//!
//! Some counts have to move, whatever it costs: those of a block that does nothing but return what a tail call gave. The
//! callee may never come back, and the path is over where it is called.

use super::BlockProperties;
use super::code::{Code, ProgramFrame};
use super::operation::{Operation, value_set};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Node};

/// Moves counts to the edges into the nodes before them: `wherever` that pays, or only where it has to be. Nodes are
/// treated from the ends of paths on, so that a count moves as far as it pays. Takes time linear in the size of the graph.
pub fn run(frame: &ProgramFrame, code: &mut Code, frequencies: &Frequencies, blocks: &BlockProperties, wherever: bool) {
    let graph = &frame.graph;
    let known = constants(frame, code);
    let in_loops: Vec<Node> = code.loops.iter().flat_map(|l| l.nodes.iter().copied()).collect();
    for &node in frame.order.iter().rev().filter(|n| **n != graph.entry()) {
        let mut out = code.live(graph.out(node));
        let (Some(end), None) = (out.next(), out.next()) else { continue };
        drop(out);
        let Some(count) = ends(code.on(end)) else { continue };
        let into: Vec<Edge> = code.live(graph.incoming(node)).collect();
        let can = blocks.quiet[node.index()]
            && !in_loops.contains(&node)
            && graph.to(end) != node
            && into.iter().all(|e| blocks.open[e.index()] && !is_counted_behind(code.on(*e)));
        if can && (blocks.early[node.index()] || (wherever && pays(code, &into, &known, frequencies, blocks))) {
            let set = value_set(code.on(end)).map_or(Operation::Discard, Operation::Set);
            code.operations[end.index()] = vec![set];
            into.iter().for_each(|e| code.operations[e.index()].push(count));
        }
    }
}

/// If a path that takes an edge with these operations is bound to end: what counts it, by the register as it is before the
/// edge.
fn ends(operations: &[Operation]) -> Option<Operation> {
    match operations {
        [count @ (Operation::Count { .. } | Operation::Check { .. })] => Some(*count),
        [count @ (Operation::Count { .. } | Operation::Check { .. }), Operation::Set(_)] => Some(*count),
        [Operation::Add(before), Operation::Count { increment }] => Some(Operation::Count { increment: before.wrapping_add(*increment) }),
        [Operation::Add(before), Operation::Check { increment }] => Some(Operation::Check { increment: before.wrapping_add(*increment) }),
        _ => None,
    }
}

/// Whether the path that goes on behind an edge is counted on the edge.
fn is_counted_behind(operations: &[Operation]) -> bool {
    matches!(operations.last(), Some(Operation::Count { .. } | Operation::Check { .. }))
}

/// Whether counts on these edges cost less than one behind them: there every edge with a constant would have to set the
/// register; here edges that cannot carry code may need a jump.
fn pays(code: &Code, into: &[Edge], known: &[Option<i64>], frequencies: &Frequencies, blocks: &BlockProperties) -> bool {
    let differ = into.iter().any(|e| known[e.index()].is_none() || known[e.index()] != known[into[0].index()]);
    let sum = |edges: &dyn Fn(&&Edge) -> bool| into.iter().filter(|e| edges(e)).map(|e| frequencies.edge(*e)).sum::<f64>();
    let constant = sum(&|e| known[e.index()].is_some());
    let jumps = sum(&|e| !blocks.free[e.index()] && !code.has_code(**e));
    into.len() > 1 && differ && jumps < constant
}

/// The register behind each edge, where it is the same on all paths there.
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
