//! Numbers that favour marked edges: what precise selective labels (P3 paper, algorithm 1) are made of.

use super::TooManyPaths;
use crate::dag::Dag;
use crate::graph::Node;

/// Ball-Larus among marked edges, and the number of paths along them from each node: numbers from 0 to one less than the paths. Zero
/// elsewhere.
pub fn number_within(dag: &Dag, marked: &[bool]) -> (Vec<i64>, Vec<i64>) {
    let mut values = vec![0i64; dag.edges().len()];
    let mut paths = vec![0i64; dag.node_count()];
    paths[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let mut sum = 0;
        for &edge in dag.out(node).iter().filter(|e| marked[e.index()]) {
            values[edge.index()] = sum;
            sum += paths[dag.edge(edge).to.index()];
        }
        paths[node.index()] = sum;
    }
    (values, paths)
}

/// Numbers of all paths, uninteresting out-edges first; interesting ones by decreasing least number behind them if `sorted`.
pub fn marked_last(dag: &Dag, interesting: &[bool], sorted: bool) -> Result<Vec<i64>, TooManyPaths> {
    let mut values = vec![0i64; dag.edges().len()];
    let mut paths = vec![0i64; dag.node_count()];
    let mut least = vec![i64::MAX; dag.node_count()];
    paths[dag.exit().index()] = 1;
    least[dag.exit().index()] = 0;
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let mut out = dag.out(node).to_vec();
        // Stable sorts: among equals the order of the graph remains.
        out.sort_by_key(|e| interesting[e.index()]);
        if sorted {
            out.sort_by_key(|e| {
                (interesting[e.index()], std::cmp::Reverse(if interesting[e.index()] { least[dag.edge(*e).to.index()] } else { 0 }))
            });
        }
        let mut sum = 0i64;
        for edge in out {
            let to = dag.edge(edge).to.index();
            values[edge.index()] = sum;
            if interesting[edge.index()] {
                least[node.index()] = least[node.index()].min(least[to].saturating_add(sum));
            }
            sum = sum.checked_add(paths[to]).ok_or(TooManyPaths(node.0))?;
        }
        paths[node.index()] = sum;
    }
    Ok(values)
}

/// Moves the value of each edge that is the only one into its head to the edges behind, from the entry on.
pub fn push_down(dag: &Dag, values: &mut [i64]) {
    let movable = |n: &&Node| **n != dag.exit() && dag.incoming(**n).len() == 1;
    for &node in dag.order().iter().filter(movable) {
        let moved = std::mem::take(&mut values[dag.incoming(node)[0].index()]);
        dag.out(node).iter().for_each(|e| values[e.index()] += moved);
    }
}

/// Drops the values of uninteresting edges.
pub fn absorb(interesting: &[bool], values: &mut [i64]) {
    values.iter_mut().zip(interesting).filter(|(_, interesting)| !**interesting).for_each(|(value, _)| *value = 0);
}
