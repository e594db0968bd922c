//! Precise selective path profiling: labels such that the sum of each interesting path is unique among all paths.
//!
//! Source: Afraz, Saha and Kanade (2015), algorithm 1. A path is interesting if it consists of interesting edges. At each node,
//! uninteresting out-edges are labelled first, then interesting ones by the minimum sum of an interesting path through them, in descending
//! order. Then labels are pushed down over nodes with one in-edge, and the labels of uninteresting edges are set to zero. O(edges *
//! log(out-degree)).

use crate::dag::{Dag, DagEdgeId, DagEdgeSet};
use crate::numbering::{number_with_marked_edges_last, push_values_down, zero_unmarked_values};

/// Returns the label of each edge. The DAG must have fewer than 2^63 paths; sums are less than the number of paths.
pub fn precise_selective_labels(dag: &Dag, interesting: &DagEdgeSet) -> Vec<i64> {
    let mut values = number_with_marked_edges_last(dag, interesting, true).expect("the paths can be numbered");
    push_values_down(dag, &mut values);
    zero_unmarked_values(interesting, &mut values);
    values
}

/// Finds paths by their sums of labels. At each node, the sums through the interesting out-edges must be in disjoint ranges, so that the
/// search does not need backtracking. Precise selective labels and Ball-Larus values have this property.
pub struct LabelSumDecoder<'a> {
    dag: &'a Dag,
    labels: &'a [i64],
    interesting: &'a DagEdgeSet,
    /// Minimum and maximum sum of an interesting path from each node to the exit; `None` if there is no such path.
    ranges: Vec<Option<(i128, i128)>>,
}

impl<'a> LabelSumDecoder<'a> {
    /// Prepares the search for paths of `interesting` edges. `labels` has an element for each edge.
    pub fn new(dag: &'a Dag, labels: &'a [i64], interesting: &'a DagEdgeSet) -> LabelSumDecoder<'a> {
        let ranges = dag.min_and_max_sums_to_exit(|e| interesting.contains(e).then_some(labels[e.index()]));
        LabelSumDecoder { dag, labels, interesting, ranges }
    }

    /// Finds the interesting path with the given sum, or returns `None` if there is no such path.
    pub fn path(&self, sum: i64) -> Option<Vec<DagEdgeId>> {
        let (mut path, mut node, mut left) = (Vec::new(), self.dag.entry(), i128::from(sum));
        while node != self.dag.exit() {
            let fits = |e: &&DagEdgeId| {
                let range = self.ranges[self.dag.edge(**e).to.index()].filter(|_| self.interesting.contains(**e));
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
