//! Preferential path profiling: compact numbers for any list of interesting paths.
//!
//! Source: Vaswani's thesis, section 3.3.1 and figure 3.10 (`computePPPIncrements`). Nodes are visited from the exit to the entry. For each
//! prefix of an interesting path that ends at an edge's source, the edge needs a value that puts the numbers through the edge above those
//! through the preceding out-edges. The *join*, which becomes the edge's value, is the greatest of these values. Interesting paths have
//! different numbers from 0 on, and other paths may have the same numbers. Prefixes form a trie, so the work is linear in the size of the
//! trie. The number of unused numbers depends on the order of the out-edges. Additional orders are drawn from a fixed seed, and the first
//! one with the least span is used.

use super::NumberingError;
use std::collections::BTreeMap;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::graph::Node;
use trodden_flow::numbering::sequence::ShuffleRng;

/// Maximum number of restarts. More restarts hardly reduce the span.
pub const MAX_PREFERENTIAL_RESTARTS: u32 = 1 << 16;

/// The result of preferential numbering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferentialIds {
    /// The value of each edge.
    pub values: Vec<i64>,
    /// The greatest number of an interesting path, plus one; the least is 0.
    pub span: u64,
}

/// Numbers `paths`, which must differ and lead from entry to exit. Tries the order of the out-edges, then `restarts` random orders.
pub fn preferential(dag: &Dag, paths: &[Vec<DagEdgeId>], restarts: u32) -> Result<PreferentialIds, NumberingError> {
    let trie = PathTrie::new(dag, paths);
    let mut best = trie.number_paths(dag, |_| {}, &mut |_, _, _| {});
    let mut shuffle = ShuffleRng::default();
    for _ in 0..restarts.min(MAX_PREFERENTIAL_RESTARTS) {
        if best.as_ref().is_ok_and(|b| b.span == paths.len() as u64) {
            break;
        }
        let other = trie.number_paths(dag, |out| shuffle.shuffle(out), &mut |_, _, _| {});
        best = match (best, other) {
            (Ok(b), Ok(o)) if o.span < b.span => Ok(o),
            (Err(_), other) => other,
            (best, _) => best,
        };
    }
    best
}

/// Called for each edge and each prefix that reaches it. The last argument has the interval of numbers after the edge, the end of the
/// interval for the preceding out-edges, and the edge's value.
type StepObserver<'a> = dyn FnMut(DagEdgeId, usize, ((i64, i64), i64, i64)) + 'a;

pub(super) struct PathTrie {
    /// For each node of the DAG, the prefixes that lead to it.
    at: Vec<Vec<usize>>,
    /// For each prefix, the prefixes that are one edge longer.
    next: Vec<BTreeMap<DagEdgeId, usize>>,
}

impl PathTrie {
    pub(super) fn new(dag: &Dag, paths: &[Vec<DagEdgeId>]) -> PathTrie {
        let mut trie = PathTrie { at: vec![Vec::new(); dag.node_count()], next: vec![BTreeMap::new()] };
        trie.at[dag.entry().index()].push(0);
        for path in paths {
            let mut prefix = 0;
            for &edge in path {
                let fresh = trie.next.len();
                prefix = *trie.next[prefix].entry(edge).or_insert(fresh);
                if prefix == fresh {
                    trie.next.push(BTreeMap::new());
                    trie.at[dag.edge(edge).to.index()].push(fresh);
                }
            }
        }
        trie
    }

    pub(super) fn list_prefixes(&self) -> Vec<Vec<DagEdgeId>> {
        let mut edges = vec![Vec::new(); self.next.len()];
        for at in 0..self.next.len() {
            for (edge, next) in &self.next[at] {
                edges[*next] = [edges[at].as_slice(), &[*edge]].concat();
            }
        }
        edges
    }

    /// Returns the nodes at which interesting paths with the same prefix diverge.
    pub(super) fn nodes_where_prefixes_diverge(&self, dag: &Dag) -> Vec<Node> {
        let parts = |node: &Node| self.at[node.index()].iter().any(|prefix| self.next[*prefix].len() > 1);
        dag.order().iter().copied().filter(parts).collect()
    }

    /// Runs `computePPPIncrements` with the out-edges of each node in the order that `arrange` gives.
    pub(super) fn number_paths(
        &self,
        dag: &Dag,
        mut arrange: impl FnMut(&mut [DagEdgeId]),
        observe: &mut StepObserver,
    ) -> Result<PreferentialIds, NumberingError> {
        let mut values = vec![0i64; dag.edges().len()];
        // Least and greatest partial number after each prefix.
        let mut intervals = vec![(0i64, 0i64); self.next.len()];
        for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
            let prefixes = &self.at[node.index()];
            let mut merged: Vec<Option<(i64, i64)>> = vec![None; prefixes.len()];
            let mut out = dag.out(node).to_vec();
            arrange(&mut out);
            for edge in out {
                let taken: Vec<(usize, (i64, i64))> =
                    prefixes.iter().enumerate().filter_map(|(i, p)| self.next[*p].get(&edge).map(|n| (i, intervals[*n]))).collect();
                // The join: for each prefix, the numbers through this edge must begin where those through the edges before end.
                let needed =
                    |(i, (least, _)): &(usize, (i64, i64))| merged[*i].map_or(Some(0), |m| m.1.checked_add(1))?.checked_sub(*least);
                let needed: Vec<i64> = taken.iter().map(needed).collect::<Option<_>>().ok_or(NumberingError::Overflow)?;
                let Some(value) = needed.into_iter().max() else { continue };
                values[edge.index()] = value;
                for (i, (least, greatest)) in taken {
                    observe(edge, prefixes[i], ((least, greatest), merged[i].map_or(0, |m| m.1 + 1), value));
                    let ends = least.checked_add(value).zip(greatest.checked_add(value)).ok_or(NumberingError::Overflow)?;
                    merged[i] = Some((merged[i].map_or(ends.0, |m| m.0), ends.1));
                }
            }
            for (prefix, interval) in prefixes.iter().zip(merged) {
                intervals[*prefix] = interval.expect("an interesting path goes on until the exit");
            }
        }
        let (least, greatest) = intervals[0];
        let span = greatest.checked_sub(least).and_then(|s| s.checked_add(1)).ok_or(NumberingError::Overflow)?;
        Ok(PreferentialIds { values, span: span as u64 })
    }
}
