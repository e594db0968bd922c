//! The program of one copy's part of the paths: each is counted on its end ([`crate::part::Ends`]), if its end is the copy's.
//!
//! Behind an end only one edge leads on and no call on it is one that might not come back, so a count there is as exact
//! as one where the path is over. Where nothing of interest can come any more, nothing is done until the next path
//! begins.
//!
//! A path may be decided where it begins, behind a cut edge: then it is counted on that edge, after the register was
//! set. What follows a call that returns twice begins whenever that call returns, without the edge being taken again:
//! such paths are counted on the edge behind.

use super::operation::{Operation, add};
use crate::dag::{Cut, CutReason, Dag, DagEdgeId};
use crate::graph::{Edge, Graph, Node};
use crate::part::{Hits, Part};

/// What has to be done on each edge of a graph.
pub fn operations(graph: &Graph, dag: &Dag, part: &Part) -> Vec<Vec<Operation>> {
    let mut returning = vec![false; graph.node_count()];
    for cut in dag.cuts().iter().filter(|c| c.reason == CutReason::ReturnsTwice) {
        returning[graph.to(cut.edge).index()] = cut.enter.is_some_and(|id| part.counted[id.index()]);
    }
    let counting = Counting { graph, dag, part, leads: part.leads(dag), returning };
    graph.edges().map(|e| counting.on(e)).collect()
}

/// Hits of probes on an edge: of those that stand there, and on what a cut edge was replaced by.
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
    /// Nodes from which a count is reached.
    leads: Vec<bool>,
    /// Nodes where a call returns twice and the path that begins is decided, and of interest.
    returning: Vec<bool>,
}

impl Counting<'_> {
    fn on(&self, edge: Edge) -> Vec<Operation> {
        let pending = self.returning[self.graph.from(edge).index()].then_some(self.part.offset);
        if let Some(id) = self.dag.real(edge) {
            return match self.counted(id).or(pending) {
                Some(increment) => vec![Operation::Count { increment }],
                None if self.goes_on(id, self.graph.to(edge)) => add(self.part.increments[id.index()]).into_iter().collect(),
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

    /// What the register lacks to the number of the path that is counted on this edge.
    fn counted(&self, id: DagEdgeId) -> Option<i64> {
        self.part.counted[id.index()].then(|| self.part.increments[id.index()].wrapping_add(self.part.offset))
    }

    /// Whether the register is of use behind an edge.
    fn goes_on(&self, id: DagEdgeId, to: Node) -> bool {
        !self.part.ends[id.index()] && self.leads[to.index()]
    }
}
