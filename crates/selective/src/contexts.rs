//! Preferential numbering of pairs of a context and a path, for the interprocedural segments of the thesis (section 3.4.4).
//!
//! Callers pass one of several contexts to a function. In the function's supergraph, each context is an edge to the function's entry. The
//! interesting pairs are paths of that graph and have compact numbers. Each pair has a different key: the path's Ball-Larus number, with
//! the context in the bits above it. Number and key share one register, as in [`crate::plan`].

use crate::plan::{InterestingPlanError, MAX_COUNTERS};
use crate::preferential;
use std::collections::BTreeSet;
use trodden_flow::dag::{Dag, DagEdge, DagEdgeId, Origin};
use trodden_flow::graph::Node;
use trodden_flow::interesting::PathEndCounterMapping;
use trodden_flow::numbering::Numbering;

/// A numbering of pairs of a context and a path.
#[derive(Clone, Debug)]
pub struct ContextNumbering {
    /// The initial register value for each context, from 0 on.
    pub starts: Vec<i64>,
    /// The increment of each edge of the function's acyclic graph.
    pub values: Vec<i64>,
    /// Maps a sum to the counter of its pair.
    pub ending: PathEndCounterMapping,
    /// The key of each counter's pair, or `None` for a counter without a pair. The last counter (all other pairs) has no entry.
    pub keys: Vec<Option<u64>>,
}

/// Numbers the interesting pairs of a function. A pair consists of a context, from 0 to `contexts` inclusive, and the Ball-Larus number of
/// a path that begins at the function's entry. The path number takes `path_bits` bits of a key.
pub fn preferential_contexts(
    (dag, all): (&Dag, &Numbering),
    (contexts, path_bits): (u32, u32),
    pairs: &[(u32, u64)],
    restarts: u32,
) -> Result<ContextNumbering, InterestingPlanError> {
    let supergraph = ContextGraph::new(dag, contexts).map_err(InterestingPlanError::Wrong)?;
    let path = |(context, id): &(u32, u64)| supergraph.path(*context, &all.path(dag, *id)?);
    let paths: Vec<Vec<DagEdgeId>> = pairs.iter().map(path).collect::<Option<_>>().ok_or(InterestingPlanError::Nothing)?;
    let numbers = preferential(&supergraph.dag, &paths, restarts)?;
    let sum = |path: &[DagEdgeId]| path.iter().map(|edge| numbers.values[edge.index()]).fold(0i64, i64::wrapping_add);
    let ids: Vec<i64> = paths.iter().map(|path| sum(path)).collect();
    if ids.iter().collect::<BTreeSet<_>>().len() < ids.len() {
        return Err(InterestingPlanError::Wrong("two segments have the same number".into()));
    }
    let (low, high) = (ids.iter().copied().min().unwrap_or(0), ids.iter().copied().max().unwrap_or(0));
    let words = (i128::from(high) - i128::from(low) + 1) as u128;
    let key = |context: u32, id: u64| u64::from(context) << path_bits | id;
    let shift = u64::BITS - key(contexts, (1 << path_bits) - 1).leading_zeros();
    if words >= MAX_COUNTERS.into() {
        return Err(InterestingPlanError::TooWide { words });
    }
    if words << shift > 1 << 64 || shift >= u64::BITS {
        return Err(InterestingPlanError::TooLong { paths: all.paths() });
    }
    let mut keys = vec![None; words as usize];
    for (id, (context, path)) in ids.iter().zip(pairs) {
        keys[(id - low) as usize] = Some(key(*context, *path));
    }
    let expected_value = |(word, key): (usize, &Option<u64>)| match key {
        Some(key) => (word as u64) << shift | key,
        // No pair has this counter, so expect a value whose upper bits belong to a different counter: no register value matches it.
        None => u64::from(word == 0) << shift,
    };
    let joined = |number: i64, key: u64| number.wrapping_shl(shift).wrapping_add(key as i64);
    let increment = |edge: DagEdgeId| {
        let number = supergraph.edges[edge.index()].map_or(0, |edge| numbers.values[edge.index()]);
        number.wrapping_shl(shift).wrapping_add(all.values()[edge.index()])
    };
    Ok(ContextNumbering {
        starts: (0..=contexts).map(|context| joined(numbers.values[context as usize], key(context, 0))).collect(),
        values: dag.edge_ids().map(increment).collect(),
        ending: PathEndCounterMapping::Checked {
            bias: low.wrapping_neg().wrapping_shl(shift),
            shift,
            expected: keys.iter().enumerate().map(expected_value).collect(),
        },
        keys,
    })
}

struct ContextGraph {
    /// The function's acyclic graph with an edge to the entry for each context. These edges come first, in the order of the contexts.
    dag: Dag,
    /// For each edge of the function's graph, its copy in the graph with contexts, or `None` if no context reaches the edge.
    edges: Vec<Option<DagEdgeId>>,
}

impl ContextGraph {
    fn new(dag: &Dag, contexts: u32) -> Result<ContextGraph, String> {
        let root = Node(dag.node_count() as u32);
        let into = |context| DagEdge { from: root, to: dag.entry(), origin: Origin::Stop(Node(context)) };
        let mut all: Vec<DagEdge> = (0..=contexts).map(into).collect();
        let mut reached = vec![false; dag.node_count()];
        reached[dag.entry().index()] = true;
        let mut edges = vec![None; dag.edges().len()];
        for node in dag.order() {
            let out: &[DagEdgeId] = if reached[node.index()] { dag.out(*node) } else { &[] };
            for &edge in out {
                let own = dag.edge(edge);
                // A path that begins at a cut edge has no context.
                if !matches!(own.origin, Origin::Enter(_)) {
                    reached[own.to.index()] = true;
                    edges[edge.index()] = Some(DagEdgeId(all.len() as u32));
                    all.push(own);
                }
            }
        }
        Ok(ContextGraph { dag: Dag::from_edges(root.0 + 1, root, dag.exit(), all)?, edges })
    }

    fn path(&self, context: u32, path: &[DagEdgeId]) -> Option<Vec<DagEdgeId>> {
        let own = path.iter().map(|edge| self.edges[edge.index()]);
        std::iter::once(Some(DagEdgeId(context))).chain(own).collect()
    }
}
