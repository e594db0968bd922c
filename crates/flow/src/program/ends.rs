//! Moves counts to the [ends](Ends) of paths, for programs that need the register until the last edge of each path nevertheless.

use super::ProbeProgram;
use super::cells::Cells;
use super::operation::{Operation, add};
use crate::dag::DagEdgeId;
use crate::part::Ends;

impl ProbeProgram {
    /// Moves the count of each path to its end. No end may be a dummy edge that begins a path ([`Ends::within_paths`]). The program must
    /// count by labels ([`ProbeProgram::from_labels`]), and no pass may have run. The register still has its value where the path's last
    /// edge begins.
    pub fn count_at(&mut self, ends: &Ends) {
        let Cells::Labels { part, .. } = &self.cells else { return };
        let (dag, increment) = (&self.frame.dag, |id: DagEdgeId| part.increments[id.index()]);
        let mut rest = vec![0i64; dag.node_count()];
        for &node in dag.order().iter().rev().filter(|node| ends.is_decided(**node) && **node != dag.exit()) {
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
                operations.retain(|operation| !matches!(operation, Operation::Count { .. }));
            }
        }
    }
}
