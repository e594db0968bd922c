//! Structural path profiling: an edge into or out of a loop ends a path and starts a new one.
//!
//! In the published scheme, a path of the outer loop continues after an inner loop as if the inner loop were one node. Here, the path ends
//! at the inner loop, so that one path register is sufficient for all levels. Paths are shorter than in the published scheme, but their
//! counts are exact.

use trodden_flow::frequency::innermost_loops;
use trodden_flow::{CutReason, Edge, Graph};

/// Returns the forced cuts, followed by cuts at the borders of loops.
pub fn loop_border_cuts(graph: &Graph, forced: &[(Edge, CutReason)]) -> Vec<(Edge, CutReason)> {
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
