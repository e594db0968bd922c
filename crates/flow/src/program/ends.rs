//! Moves counts to the [ends](PathEnds) of paths, for programs that need the register up to the last edge of each path for other reasons.

use super::ProbeProgram;
use super::cells::CounterCells;
use super::operation::{Operation, add};
use crate::dag::DagEdgeId;
use crate::part::PathEnds;
use crate::{Edge, NodeSet};

impl ProbeProgram {
    /// Moves the count of each path to its end. No end may be a dummy edge that begins a path ([`PathEnds::without_dummy_entry_edges`]).
    /// The program must count by labels ([`ProbeProgram::from_labels`]), and no pass may have run. The register still has its value where
    /// the path's last edge begins.
    pub fn move_counts_to_ends(&mut self, ends: &PathEnds) {
        let CounterCells::Labels { part, .. } = &self.cells else { return };
        let (dag, increment) = (&self.frame.dag, |id: DagEdgeId| part.increments[id.index()]);
        let mut rest = vec![0i64; dag.node_count()];
        for &node in dag.order().iter().rev().filter(|node| ends.is_after_path_end(**node) && **node != dag.exit()) {
            let only = dag.out(node)[0];
            rest[node.index()] = increment(only).wrapping_add(rest[dag.edge(only).to.index()]);
        }
        for edge in self.frame.graph.edges() {
            let operations = &mut self.code.operations[edge.index()];
            if let Some(id) = dag.real(edge) {
                let to = self.frame.graph.to(edge);
                let count = ends.contains(id).then(|| rest[to.index()]);
                *operations = match count {
                    Some(_) if to == dag.exit() => vec![Operation::Count { increment: increment(id) }],
                    None if to == dag.exit() => Vec::new(),
                    count => add(increment(id)).into_iter().chain(count.map(|increment| Operation::Count { increment })).collect(),
                };
            } else if let Some(cut) = dag.cut(edge)
                && !cut.leave.is_some_and(|id| ends.contains(id))
            {
                operations.retain(|operation| !is_count(operation));
            }
        }
    }

    /// Limits counting, after [`ProbeProgram::move_counts_to_ends`], to the edges for which `is_counted` returns true. An edge for which
    /// `needs_sum` returns true also keeps or gets a `Count`, which gives the path's sum to code that does not count there. Increments of
    /// the register that no later `Count` of the path reads are removed.
    pub fn keep_counts_only_on(&mut self, is_counted: impl Fn(Edge) -> bool, needs_sum: impl Fn(Edge) -> bool) {
        let CounterCells::Labels { part, .. } = &self.cells else { return };
        for edge in self.frame.graph.edges() {
            let operations = &mut self.code.operations[edge.index()];
            if needs_sum(edge) && !operations.iter().any(is_count) {
                let last = self.frame.dag.real(edge).or_else(|| self.frame.dag.cut(edge)?.leave);
                operations.insert(0, Operation::Count { increment: last.map_or(0, |id| part.increments[id.index()]) });
            } else if !needs_sum(edge) && !is_counted(edge) {
                operations.retain(|operation| !is_count(operation));
            }
        }
        self.remove_unread_increments();
    }

    /// Removes increments of the register after which the current path does not read it.
    fn remove_unread_increments(&mut self) {
        let graph = &self.frame.graph;
        let mut reading = NodeSet::empty(graph.node_count());
        for node in self.frame.order.iter().rev() {
            for &edge in graph.out(*node) {
                let after = reading.contains(graph.to(edge));
                let operations = &mut self.code.operations[edge.index()];
                let counts = operations.iter().any(is_count);
                if !after && !counts {
                    operations.retain(|operation| !matches!(operation, Operation::Add(_)));
                }
                if counts || after && self.frame.dag.cut(edge).is_none() {
                    reading.insert(*node);
                }
            }
        }
    }
}

fn is_count(operation: &Operation) -> bool {
    matches!(operation, Operation::Count { .. })
}
