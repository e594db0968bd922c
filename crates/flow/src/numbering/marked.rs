//! Numberings that treat marked edges differently. Precise selective labels are built from them (Afraz, Saha and Kanade 2015, algorithm 1).

use super::TooManyPaths;
use crate::dag::{Dag, DagEdgeId, DagEdgeSet};
use crate::graph::Node;

/// Numbers the paths of marked edges by Ball-Larus. Returns the value of each edge (0 for an unmarked edge), and the number of paths of
/// marked edges from each node to the exit.
pub fn number_marked_paths(dag: &Dag, marked: &DagEdgeSet) -> (Vec<i64>, Vec<i64>) {
    let mut values = vec![0i64; dag.edges().len()];
    let mut paths = vec![0i64; dag.node_count()];
    paths[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let mut sum = 0;
        for &edge in dag.out(node).iter().filter(|e| marked.contains(**e)) {
            values[edge.index()] = sum;
            sum += paths[dag.edge(edge).to.index()];
        }
        paths[node.index()] = sum;
    }
    (values, paths)
}

/// Numbers all paths. At each node, the uninteresting out-edges come first. If `sorted`, interesting out-edges are sorted by the minimum
/// number of an interesting path through them, in descending order.
pub fn number_with_marked_edges_last(dag: &Dag, interesting: &DagEdgeSet, sorted: bool) -> Result<Vec<i64>, TooManyPaths> {
    let mut values = vec![0i64; dag.edges().len()];
    let mut paths = vec![0i64; dag.node_count()];
    let mut least = vec![i64::MAX; dag.node_count()];
    paths[dag.exit().index()] = 1;
    least[dag.exit().index()] = 0;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let mut out = dag.out(node).to_vec();
        // The sorts are stable, so ties keep the order of the graph.
        out.sort_by_key(|e| interesting.contains(*e));
        if sorted {
            out.sort_by_key(|e| {
                let is_interesting = interesting.contains(*e);
                (is_interesting, std::cmp::Reverse(if is_interesting { least[dag.edge(*e).to.index()] } else { 0 }))
            });
        }
        let mut sum = 0i64;
        for edge in out {
            let to = dag.edge(edge).to.index();
            values[edge.index()] = sum;
            if interesting.contains(edge) {
                least[node.index()] = least[node.index()].min(least[to].saturating_add(sum));
            }
            sum = sum.checked_add(paths[to]).ok_or(TooManyPaths(node.0))?;
        }
        paths[node.index()] = sum;
    }
    Ok(values)
}

/// Moves the value of each edge that is its head's only in-edge to the head's out-edges, in topological order.
pub fn push_values_down(dag: &Dag, values: &mut [i64]) {
    let movable = |n: &&Node| **n != dag.exit() && dag.incoming(**n).len() == 1;
    for &node in dag.order().iter().filter(movable) {
        let moved = std::mem::take(&mut values[dag.incoming(node)[0].index()]);
        dag.out(node).iter().for_each(|e| values[e.index()] += moved);
    }
}

/// Sets the values of uninteresting edges to zero.
pub fn zero_unmarked_values(interesting: &DagEdgeSet, values: &mut [i64]) {
    let unmarked = values.iter_mut().zip((0..).map(DagEdgeId)).filter(|(_, edge)| !interesting.contains(*edge));
    unmarked.for_each(|(value, _)| *value = 0);
}
