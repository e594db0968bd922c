//! Precise selective path profiling: labels whose sums are distinct for interesting paths, and which no other path has.
//!
//! Source: Afraz, Saha and Kanade (2015), algorithm 1. Interesting paths are those that consist of interesting edges. At each node,
//! uninteresting out-edges are labelled first, then interesting ones by decreasing least sum of an interesting path through them. Then
//! labels are pushed over nodes with one in-edge, and those of uninteresting edges become zero. O(edges * log(out-degree)).

use crate::dag::{Dag, DagEdgeId};
use crate::numbering::{marked_last, push_down, zero_unmarked};

/// The label of each edge. `interesting` has one entry for each edge.
///
/// The sums are less than the number of paths of the DAG, which must be less than 2^63.
pub fn pspp(dag: &Dag, interesting: &[bool]) -> Vec<i64> {
    let mut values = marked_last(dag, interesting, true).expect("the paths can be numbered");
    push_down(dag, &mut values);
    zero_unmarked(interesting, &mut values);
    values
}

/// Finds paths by their sums of labels. At each node, the sums through the interesting out-edges must lie in disjoint ranges, as those of
/// precise selective labels and of Ball-Larus do, so the search needs no backtracking.
pub struct LabelSums<'a> {
    dag: &'a Dag,
    labels: &'a [i64],
    interesting: &'a [bool],
    /// Least and greatest sum of an interesting path from each node to the exit; `None` if there is no such path.
    ranges: Vec<Option<(i128, i128)>>,
}

impl<'a> LabelSums<'a> {
    /// Prepares the search. Both tables have an entry for each edge.
    pub fn new(dag: &'a Dag, labels: &'a [i64], interesting: &'a [bool]) -> LabelSums<'a> {
        let ranges = dag.sums_to_exit(|e| interesting[e.index()].then_some(labels[e.index()]));
        LabelSums { dag, labels, interesting, ranges }
    }

    /// The interesting path with this sum, if there is one.
    pub fn path(&self, sum: i64) -> Option<Vec<DagEdgeId>> {
        let (mut path, mut node, mut left) = (Vec::new(), self.dag.entry(), i128::from(sum));
        while node != self.dag.exit() {
            let fits = |e: &&DagEdgeId| {
                let range = self.ranges[self.dag.edge(**e).to.index()].filter(|_| self.interesting[e.index()]);
                range.is_some_and(|(least, greatest)| (least..=greatest).contains(&(left - i128::from(self.labels[e.index()]))))
            };
            let &edge = self.dag.out(node).iter().find(fits)?;
            left -= i128::from(self.labels[edge.index()]);
            node = self.dag.edge(edge).to;
            path.push(edge);
        }
        (left == 0).then_some(path)
    }
}
