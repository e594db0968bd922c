//! Creates the operations for the paths that one of several copies of a program counts. Each of these paths is counted on its end
//! ([`crate::part::PathEnds`]).
//!
//! After its end, a path has only one continuation, without a call that may not return, so a count on the end is exact. Edges after which
//! none of these paths can follow have no operations until the next path begins.
//!
//! If a path's first edge is its end, it is counted on the cut edge where it begins, after the register is set. But after a call that
//! returns twice, a path may begin again without the cut edge being taken, so such paths are counted on the next edge.

use super::operation::{Operation, add};
use crate::dag::{Cut, CutReason, Dag, DagEdgeId};
use crate::graph::{Edge, Graph, Node, NodeSet};
use crate::part::{Part, ProbeHits};

pub fn operations(graph: &Graph, dag: &Dag, part: &Part) -> Vec<Vec<Operation>> {
    let mut returning = NodeSet::empty(graph.node_count());
    for cut in dag.cuts().iter().filter(|c| c.reason == CutReason::ReturnsTwice) {
        match cut.enter.is_some_and(|id| part.counted.contains(id)) {
            true => returning.insert(graph.to(cut.edge)),
            false => returning.remove(graph.to(cut.edge)),
        };
    }
    let counting = PartCountPlacement { graph, dag, part, nodes_before_counts: part.nodes_before_counts(dag), returning };
    graph.edges().map(|e| counting.operations_on(e)).collect()
}

/// Returns the number of probes that are executed each time control takes an edge, including those on the dummy edges that replace it.
pub fn probe_hits(dag: &Dag, part: &Part, edge: Edge) -> ProbeHits {
    let of = |id: DagEdgeId| {
        let (labelled, counted, end) = (part.increments[id.index()] != 0, part.counted.contains(id), part.ends.contains(id));
        ProbeHits { labels: labelled.into(), all: (counted || labelled && !end).into() }
    };
    let cut = dag.cut(edge).map(|cut| [cut.leave, cut.enter]).unwrap_or_default();
    [dag.real(edge)].into_iter().chain(cut).flatten().map(of).sum()
}

struct PartCountPlacement<'a> {
    graph: &'a Graph,
    dag: &'a Dag,
    part: &'a Part,
    /// The nodes from which a counting edge is reachable.
    nodes_before_counts: NodeSet,
    /// The nodes at which a call returns twice, if the path that begins there is counted on its first edge.
    returning: NodeSet,
}

impl PartCountPlacement<'_> {
    fn operations_on(&self, edge: Edge) -> Vec<Operation> {
        let pending = self.returning.contains(self.graph.from(edge)).then_some(self.part.offset);
        if let Some(id) = self.dag.real(edge) {
            return match self.counted_increment(id).or(pending) {
                Some(increment) => vec![Operation::Count { increment }],
                None if self.needs_register(id, self.graph.to(edge)) => add(self.part.increments[id.index()]).into_iter().collect(),
                None => vec![Operation::Discard],
            };
        }
        match self.dag.cut(edge) {
            None => vec![Operation::Unreachable],
            Some(cut) => self.operations_on_cut(cut, pending),
        }
    }

    fn operations_on_cut(&self, cut: &Cut, pending: Option<i64>) -> Vec<Operation> {
        let ends = cut.leave.and_then(|id| self.counted_increment(id)).or(pending).map(|increment| Operation::Count { increment });
        let start = Operation::Set(cut.enter.map_or(0, |id| self.part.increments[id.index()]));
        let is_decided = cut.enter.is_some_and(|id| self.part.counted.contains(id)) && cut.reason != CutReason::ReturnsTwice;
        let begins = is_decided.then_some(Operation::Count { increment: self.part.offset });
        [ends, Some(start), begins].into_iter().flatten().collect()
    }

    /// Returns the number of the path that is counted on this edge, minus the register, or `None` if no path is counted here.
    fn counted_increment(&self, id: DagEdgeId) -> Option<i64> {
        self.part.counted.contains(id).then(|| self.part.increments[id.index()].wrapping_add(self.part.offset))
    }

    fn needs_register(&self, id: DagEdgeId, to: Node) -> bool {
        !self.part.ends.contains(id) && self.nodes_before_counts.contains(to)
    }
}
