//! Paths of each loop level separately: an edge into or out of a loop ends a path and begins another.
//!
//! Published structural path profiling lets a path of the outer level go on behind an inner loop, as if that were one
//! node. Here it ends at the loop, and what follows is a path of its own: one register serves all levels. So paths are
//! shorter still than published; their counts are exact.

use trodden_flow::frequency::innermost_loops;
use trodden_flow::{CutReason, Edge, Graph};

/// The forced cuts, and those at the borders of loops.
pub fn cuts(graph: &Graph, forced: &[(Edge, CutReason)]) -> Vec<(Edge, CutReason)> {
    let level = innermost_loops(graph);
    let mut cuts = forced.to_vec();
    for edge in graph.edges() {
        let (from, to) = (graph.from(edge), graph.to(edge));
        let crosses = level[from.index()] != level[to.index()];
        if crosses && to != graph.exit() && from != graph.exit() && !forced.iter().any(|(e, _)| *e == edge) {
            cuts.push((edge, CutReason::Limit));
        }
    }
    cuts
}
