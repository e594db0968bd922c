//! Precise selective path profiling: labels under which interesting paths have sums of their own, which no other path has.
//!
//! Source: Afraz, Saha and Kanade (2015), algorithm 1. Interesting paths are those all of whose edges are interesting.
//! At each node uninteresting edges are labelled first, then interesting ones by falling least sum of an interesting
//! path behind them; labels move over nodes of one in-edge; labels of uninteresting edges become zero. O(edges x
//! log(out-degree)).

use crate::dag::{Dag, DagEdgeId};

/// A label for each edge. `interesting` has one entry for each edge.
///
/// Sums are below the number of paths of the DAG, which must be below 2^63.
pub fn pspp(dag: &Dag, interesting: &[bool]) -> Vec<i64> {
    let mut values = initial(dag, interesting);
    for &node in dag.order() {
        if let [only] = *dag.incoming(node)
            && node != dag.exit()
        {
            let moved = std::mem::take(&mut values[only.index()]);
            dag.out(node).iter().for_each(|e| values[e.index()] += moved);
        }
    }
    values.iter_mut().zip(interesting).filter(|(_, i)| !**i).for_each(|(v, _)| *v = 0);
    values
}

/// Numbers of paths, as in Ball-Larus, with the out-edges of each node in the order that keeps absorbed paths below interesting ones.
fn initial(dag: &Dag, interesting: &[bool]) -> Vec<i64> {
    let mut values = vec![0; dag.edges().len()];
    let mut paths = vec![0i64; dag.node_count()];
    // The least sum of an interesting path from each node; none from some.
    let mut least: Vec<Option<i64>> = vec![None; dag.node_count()];
    paths[dag.exit().index()] = 1;
    least[dag.exit().index()] = Some(0);
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        let to = |e: DagEdgeId| dag.edge(e).to.index();
        let (mut kept, rest): (Vec<DagEdgeId>, Vec<DagEdgeId>) = dag.out(node).iter().partition(|e| interesting[e.index()]);
        kept.sort_by_key(|e| std::cmp::Reverse(least[to(*e)].unwrap_or(i64::MAX)));
        let mut sum = rest.iter().map(|e| paths[to(*e)]).sum::<i64>();
        let mut lowest: Option<i64> = None;
        for edge in kept {
            values[edge.index()] = sum;
            if let Some(behind) = least[to(edge)] {
                lowest = Some(lowest.map_or(behind + sum, |l| l.min(behind + sum)));
            }
            sum += paths[to(edge)];
        }
        paths[node.index()] = sum;
        least[node.index()] = lowest;
    }
    values
}

/// Those interesting edges that lie on a path of interesting edges only.
pub fn closure(dag: &Dag, interesting: &[bool]) -> Vec<bool> {
    let mut from_entry = vec![false; dag.node_count()];
    let mut to_exit = vec![false; dag.node_count()];
    from_entry[dag.entry().index()] = true;
    to_exit[dag.exit().index()] = true;
    let is_interesting = |e: &&DagEdgeId| interesting[e.index()];
    for &node in dag.order() {
        if dag.incoming(node).iter().filter(is_interesting).any(|e| from_entry[dag.edge(*e).from.index()]) {
            from_entry[node.index()] = true;
        }
    }
    for &node in dag.order().iter().rev() {
        if dag.out(node).iter().filter(is_interesting).any(|e| to_exit[dag.edge(*e).to.index()]) {
            to_exit[node.index()] = true;
        }
    }
    let lies = |e: DagEdgeId| interesting[e.index()] && from_entry[dag.edge(e).from.index()] && to_exit[dag.edge(e).to.index()];
    dag.edge_ids().map(lies).collect()
}

/// Finds paths by the sums of their labels. At each node the sums behind the interesting edges must lie in ranges that
/// do not overlap, as in precise selective labels and in Ball-Larus: so the walk never has to go back.
pub struct LabelSums<'a> {
    dag: &'a Dag,
    labels: &'a [i64],
    interesting: &'a [bool],
    /// Least and greatest sum of interesting edges from each node to the exit.
    ranges: Vec<Option<(i64, i64)>>,
}

impl<'a> LabelSums<'a> {
    /// Prepares the search. Both tables have an entry for each edge.
    pub fn new(dag: &'a Dag, labels: &'a [i64], interesting: &'a [bool]) -> LabelSums<'a> {
        let mut ranges: Vec<Option<(i64, i64)>> = vec![None; dag.node_count()];
        ranges[dag.exit().index()] = Some((0, 0));
        for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
            let behind = |e: &DagEdgeId| {
                let (least, most) = ranges[dag.edge(*e).to.index()].filter(|_| interesting[e.index()])?;
                Some((least.wrapping_add(labels[e.index()]), most.wrapping_add(labels[e.index()])))
            };
            ranges[node.index()] = dag.out(node).iter().filter_map(behind).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        LabelSums { dag, labels, interesting, ranges }
    }

    /// The interesting path with a sum, if there is one.
    pub fn path(&self, sum: i64) -> Option<Vec<DagEdgeId>> {
        let (mut path, mut node, mut left) = (Vec::new(), self.dag.entry(), sum);
        while node != self.dag.exit() {
            let fits = |e: &&DagEdgeId| {
                let range = self.ranges[self.dag.edge(**e).to.index()].filter(|_| self.interesting[e.index()]);
                range.is_some_and(|(least, most)| (least..=most).contains(&left.wrapping_sub(self.labels[e.index()])))
            };
            let &edge = self.dag.out(node).iter().find(fits)?;
            left = left.wrapping_sub(self.labels[edge.index()]);
            node = self.dag.edge(edge).to;
            path.push(edge);
        }
        (left == 0).then_some(path)
    }
}
