//! The program of one copy's part of the paths: each of its paths is counted on its end ([`crate::part::Ends`]).
//!
//! After an end only one way leads on, without a call that may not return, so a count there is as exact as one where the path is over.
//! Where no path of the part can follow, nothing is done until the next path begins.
//!
//! A path may be decided where it begins, on a cut edge, and is then counted there after the register is set. But a path that begins at a
//! call that returns twice begins again without the edge being taken; such paths are counted on the next edge.

use super::operation::{Operation, add};
use crate::dag::{Cut, CutReason, Dag, DagEdgeId};
use crate::graph::{Edge, Graph, Node};
use crate::part::{Hits, Part};

/// The operations on each edge of a graph.
pub fn operations(graph: &Graph, dag: &Dag, part: &Part) -> Vec<Vec<Operation>> {
    let mut returning = vec![false; graph.node_count()];
    for cut in dag.cuts().iter().filter(|c| c.reason == CutReason::ReturnsTwice) {
        returning[graph.to(cut.edge).index()] = cut.enter.is_some_and(|id| part.counted[id.index()]);
    }
    let counting = Counting { graph, dag, part, leads: part.leads(dag), returning };
    graph.edges().map(|e| counting.on(e)).collect()
}

/// Hits of the probes on an edge, including those on the dummy edges that replace it.
pub fn hits(dag: &Dag, part: &Part, edge: Edge) -> Hits {
    let of = |id: DagEdgeId| {
        let (labelled, counted, end) = (part.increments[id.index()] != 0, part.counted[id.index()], part.ends[id.index()]);
        Hits { labels: labelled.into(), all: (counted || labelled && !end).into() }
    };
    let cut = dag.cut(edge).map(|cut| [cut.leave, cut.enter]).unwrap_or_default();
    [dag.real(edge)].into_iter().chain(cut).flatten().map(of).sum()
}

struct Counting<'a> {
    graph: &'a Graph,
    dag: &'a Dag,
    part: &'a Part,
    /// Nodes from which a counting edge is reachable.
    leads: Vec<bool>,
    /// Nodes where a call returns twice, and the path that begins there is already decided and counted by this part.
    returning: Vec<bool>,
}

impl Counting<'_> {
    fn on(&self, edge: Edge) -> Vec<Operation> {
        let pending = self.returning[self.graph.from(edge).index()].then_some(self.part.offset);
        if let Some(id) = self.dag.real(edge) {
            return match self.counted(id).or(pending) {
                Some(increment) => vec![Operation::Count { increment }],
                None if self.needs_register(id, self.graph.to(edge)) => add(self.part.increments[id.index()]).into_iter().collect(),
                None => vec![Operation::Discard],
            };
        }
        match self.dag.cut(edge) {
            None => vec![Operation::Unreachable],
            Some(cut) => self.on_cut(cut, pending),
        }
    }

    fn on_cut(&self, cut: &Cut, pending: Option<i64>) -> Vec<Operation> {
        let ends = cut.leave.and_then(|id| self.counted(id)).or(pending).map(|increment| Operation::Count { increment });
        let start = Operation::Set(cut.enter.map_or(0, |id| self.part.increments[id.index()]));
        let is_decided = cut.enter.is_some_and(|id| self.part.counted[id.index()]) && cut.reason != CutReason::ReturnsTwice;
        let begins = is_decided.then_some(Operation::Count { increment: self.part.offset });
        [ends, Some(start), begins].into_iter().flatten().collect()
    }

    /// The number of the path counted on this edge minus the register; `None` if no path is counted there.
    fn counted(&self, id: DagEdgeId) -> Option<i64> {
        self.part.counted[id.index()].then(|| self.part.increments[id.index()].wrapping_add(self.part.offset))
    }

    /// Whether the register is used after an edge.
    fn needs_register(&self, id: DagEdgeId, to: Node) -> bool {
        !self.part.ends[id.index()] && self.leads[to.index()]
    }
}
