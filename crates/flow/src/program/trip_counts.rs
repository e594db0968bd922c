//! Pass: counts an innermost loop with a single path and no calls by its trip count, which is added to the path's counter when the loop is
//! left ([`TripCountedLoop`]). Edge profilers promote counters to registers for the same purpose; here, the loop's own induction variable
//! can usually be used.

use super::code::{EdgeCode, ProgramGraphs, TripCountedLoop};
use super::operation::{Operation, constant_register_value};
use super::{BlockProperties, TripCounting};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use std::num::NonZeroU64;

/// Minimum number of iterations per entry with which the code on the exit edges costs less than counting each iteration. This is a rough
/// estimate: if it is 2, three benchmark programs do not change; if it is 20, they execute 0 to 0.3% fewer instructions
/// (docs/benchmarks/constants.md).
const MIN_ITERATIONS_TO_COUNT_BY_TRIP: f64 = 5.0;
/// Maximum number of instructions in an iteration of a [tight](TripCounting::Tight) loop. If this is 0, three benchmark programs execute
/// 0.9% fewer to 1.1% more instructions; if it is 24, 0.9% fewer to 4.3% more (docs/benchmarks/constants.md).
const MAX_TIGHT_LOOP_INSTRUCTIONS: u32 = 6;
/// Maximum number of exit edges, each of which needs code that adds the trip count. If this is 8, three benchmark programs do not change;
/// if it is 1, they execute 0 to 0.3% fewer instructions (docs/benchmarks/constants.md).
const MAX_LOOP_EXITS: usize = 3;

/// Counts loops by their trip counts if that is profitable. The time is linear in the size of the graph, but quadratic in the size of the
/// loops that are counted so.
pub fn count_loops_by_trip_count(
    frame: &ProgramGraphs,
    code: &mut EdgeCode,
    frequencies: &Frequencies,
    blocks: &BlockProperties,
    which: TripCounting,
) {
    if which == TripCounting::Off {
        return;
    }
    for back in frame.back_edges() {
        if let Some(candidate) = CountableLoop::find_countable_loop(frame, code, blocks, back)
            .filter(|c| c.is_profitable(frame, code, frequencies, blocks, which))
        {
            candidate.count_by_trip_count(frame, code);
        }
    }
}

struct CountableLoop {
    back: Edge,
    nodes: Vec<Node>,
    exits: Vec<Edge>,
    /// The register at the beginning of each iteration except the first.
    start: i64,
    /// Number of executions of the back edge per entry; `None` if this number is not constant.
    trip_count: Option<NonZeroU64>,
}

impl CountableLoop {
    fn find_countable_loop(frame: &ProgramGraphs, code: &EdgeCode, blocks: &BlockProperties, back: Edge) -> Option<CountableLoop> {
        let graph = &frame.graph;
        if blocks.changes_version.contains(&back) {
            return None;
        }
        let nodes = find_single_path_loop(frame, code, blocks, back)?;
        let start = constant_register_value(code.operations_on(back)).filter(|_| is_counted_once(code, graph, &nodes, back))?;
        let exits: Vec<Edge> =
            nodes.iter().flat_map(|n| code.live_edges(graph.out(*n))).filter(|e| !stays_in_loop(graph, &nodes, back, *e)).collect();
        // A loop without exits is infinite, and must be counted inside.
        if exits.is_empty() || exits.len() > MAX_LOOP_EXITS || exits.iter().any(|e| !blocks.can_carry_code.contains(*e)) {
            return None;
        }
        // With a constant trip count, the exit edge needs two additions, and the iterations need no code.
        let trip_count = match blocks.trip_counts.get(&back).filter(|_| exits.len() == 1) {
            // The back edge is never taken (for example, because one vector iteration does all the work), so its count has no cost.
            Some(0) => return None,
            count => count.copied().and_then(NonZeroU64::new),
        };
        Some(CountableLoop { back, nodes, exits, start, trip_count })
    }

    fn is_profitable(
        &self,
        frame: &ProgramGraphs,
        code: &EdgeCode,
        frequencies: &Frequencies,
        blocks: &BlockProperties,
        which: TripCounting,
    ) -> bool {
        let graph = &frame.graph;
        let is_counted_by_program = self.exits.len() == 1 && blocks.counted.contains(&self.back);
        let is_short = || self.nodes.iter().map(|n| blocks.sizes[n.index()]).sum::<u32>() <= MAX_TIGHT_LOOP_INSTRUCTIONS;
        let entering = code.live_edges(graph.incoming(self.nodes[0])).filter(|e| *e != self.back);
        let outside: f64 = entering.map(|e| frequencies.edge(e)).sum();
        let iterates = frequencies.edge(self.back) >= MIN_ITERATIONS_TO_COUNT_BY_TRIP * outside;
        self.trip_count.is_some() || (which == TripCounting::On || is_counted_by_program || is_short()) && iterates
    }

    fn count_by_trip_count(self, frame: &ProgramGraphs, code: &mut EdgeCode) {
        let (graph, of) = (&frame.graph, code.next_loop_id());
        let (mut partial, mut whole) = (0i64, 0);
        for node in &self.nodes {
            let (region, leaving): (Vec<Edge>, Vec<Edge>) =
                graph.out(*node).iter().partition(|e| stays_in_loop(graph, &self.nodes, self.back, **e));
            let exits: Vec<Edge> = code.live_edges(&leaving).collect();
            exits.iter().for_each(|e| code.operations[e.index()].insert(0, Operation::Flush { of, partial }));
            for operation in code.operations_on(region[0]) {
                match operation {
                    Operation::Add(increment) => partial = partial.wrapping_add(*increment),
                    Operation::Count { increment } => whole = partial.wrapping_add(*increment),
                    _ => {}
                }
            }
            code.operations[region[0].index()].retain(|o| !matches!(o, Operation::Add(_) | Operation::Count { .. }));
        }
        code.operations[self.back.index()] = vec![Operation::Iterate(of)];
        let CountableLoop { back, nodes, start, trip_count, .. } = self;
        code.loops.push(TripCountedLoop { head: nodes[0], back, nodes, start, increment: whole, trip_count });
    }
}

fn stays_in_loop(graph: &Graph, nodes: &[Node], back: Edge, edge: Edge) -> bool {
    edge == back || (nodes.contains(&graph.to(edge)) && graph.to(edge) != nodes[0])
}

/// Returns whether an iteration's path is counted on the back edge, or on an earlier edge after which only one path continues.
fn is_counted_once(code: &EdgeCode, graph: &Graph, nodes: &[Node], back: Edge) -> bool {
    let counts = |e: Edge| code.operations_on(e).iter().any(|o| matches!(o, Operation::Count { .. }));
    match code.operations_after_flushes(back) {
        [Operation::Count { .. }, Operation::Set(_)] => true,
        [Operation::Set(_)] => {
            let region = |pair: &[Node]| code.live_edges(graph.out(pair[0])).find(|e| graph.to(*e) == pair[1]);
            nodes.windows(2).filter_map(region).any(counts)
        }
        _ => false,
    }
}

/// Returns the nodes of the loop with this back edge. Returns `None` unless the loop has a single path, is entered only at its head,
/// contains no other loop, and has only [quiet](BlockProperties::quiet) nodes.
fn find_single_path_loop(frame: &ProgramGraphs, code: &EdgeCode, blocks: &BlockProperties, back: Edge) -> Option<Vec<Node>> {
    let graph = &frame.graph;
    let (latch, head) = (graph.from(back), graph.to(back));
    if head == graph.entry() || code.live_edges(graph.incoming(head)).any(|e| e != back && frame.cut(e).is_some()) {
        return None;
    }
    let mut nodes = vec![latch];
    while nodes[nodes.len() - 1] != head {
        let node = nodes[nodes.len() - 1];
        let mut into = code.live_edges(graph.incoming(node));
        let (Some(only), None) = (into.next(), into.next()) else { return None };
        if frame.cut(only).is_some() {
            return None;
        }
        nodes.push(graph.from(only));
    }
    nodes.reverse();
    let follows = |i: usize| nodes.get(i + 1).copied().unwrap_or(head);
    let stays = |n: Node, to: Node| code.live_edges(graph.out(n)).filter(|e| graph.to(*e) == to).count() == 1;
    let is_only_path = (0..nodes.len()).all(|i| blocks.quiet.contains(nodes[i]) && stays(nodes[i], follows(i)));
    is_only_path.then_some(nodes)
}
