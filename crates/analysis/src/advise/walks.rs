//! The executed paths of a function, as sequences of edges.

use trodden_flow::{Edge, EdgeSet, Node, Origin};
use trodden_profile::paths::{CountedPath, FunctionPaths};
use trodden_unit::{EdgeKind, FunctionMap};

/// All executed paths of a function, complete and unfinished.
pub struct ExecutedPaths<'a> {
    /// The function.
    pub map: &'a FunctionMap,
    /// The executed paths, most frequent first.
    pub walks: Vec<ExecutedBlockPath>,
    /// Number of executions of each block.
    pub blocks: Vec<u64>,
    /// Number of executions of each edge.
    pub edges: Vec<u64>,
    /// The edges taken out of a block from which at least one other edge was taken, too.
    deciding: EdgeSet,
}

/// An executed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutedBlockPath {
    /// The path's number.
    pub id: u64,
    /// Number of executions.
    pub count: u64,
    /// The path's blocks.
    pub blocks: Vec<Node>,
    /// The edge taken out of each block, in order. An unfinished path has no edge for its last block.
    pub edges: Vec<Edge>,
    /// For each block, the sum of the Ball-Larus edge values before it. Two paths reach a block with the same sum only if they are equal up
    /// to the block.
    pub sums: Vec<i64>,
}

impl<'a> ExecutedPaths<'a> {
    /// Collects the executed paths.
    pub fn new(map: &'a FunctionMap, paths: &FunctionPaths) -> ExecutedPaths<'a> {
        let executed = paths.all().filter(|p| p.is_complete() || p.count > 0);
        let mut walks = ExecutedPaths {
            map,
            walks: executed.map(|path| ExecutedBlockPath::new(map, path)).collect(),
            blocks: vec![0; map.blocks.len()],
            edges: vec![0; map.graph.edge_count()],
            deciding: EdgeSet::empty(map.graph.edge_count()),
        };
        for walk in &walks.walks {
            walk.blocks.iter().for_each(|b| add_saturating(&mut walks.blocks[b.index()], walk.count));
            walk.edges.iter().for_each(|e| add_saturating(&mut walks.edges[e.index()], walk.count));
        }
        let mut edges = vec![0; map.blocks.len()];
        let is_taken = |e: Edge| is_branch_outcome(map.graph.kind(e)) && walks.edges[e.index()] > 0;
        let taken = EdgeSet::from_fn(map.graph.edge_count(), is_taken);
        taken.iter().for_each(|e| edges[map.graph.from(e).index()] += 1);
        let several = taken.iter().filter(|e| edges[map.graph.from(*e).index()] > 1);
        walks.deciding = EdgeSet::from_members(map.graph.edge_count(), several);
        walks
    }

    /// Iterates over the decisions on a path: for each block with several executed outcomes, the block's index and the edge taken.
    pub fn taken_decisions<'w>(&'w self, walk: &'w ExecutedBlockPath) -> impl DoubleEndedIterator<Item = (usize, Edge)> + use<'w, 'a> {
        walk.edges.iter().copied().enumerate().filter(|(_, e)| self.deciding.contains(*e))
    }

    /// Returns the block that an edge leaves.
    pub fn source_block(&self, edge: Edge) -> Node {
        self.map.graph.from(edge)
    }

    /// Returns the edges that were taken out of a block if there are at least two, and no edges otherwise.
    pub fn taken_edges(&self, block: Node) -> Vec<Edge> {
        self.deciding.iter().filter(|e| self.source_block(*e) == block).collect()
    }
}

impl ExecutedBlockPath {
    fn new(map: &FunctionMap, path: CountedPath) -> ExecutedBlockPath {
        let (mut edges, mut sums, mut sum) = (Vec::new(), Vec::new(), 0i64);
        for edge in path.path {
            let origin = map.dag[edge.index()];
            if !matches!(origin, Origin::Enter(_)) {
                sums.push(sum);
            }
            sum = sum.wrapping_add(map.values[edge.index()]);
            if let Origin::Real(e) | Origin::Leave(e) = origin {
                edges.push(e);
            }
        }
        // An unfinished path has no edge that leaves its last block.
        if sums.len() < path.blocks.len() {
            sums.push(sum);
        }
        ExecutedBlockPath { id: path.id, count: path.executions(), blocks: path.blocks.to_vec(), edges, sums }
    }
}

fn is_branch_outcome(kind: EdgeKind) -> bool {
    matches!(kind, EdgeKind::True | EdgeKind::False | EdgeKind::Case(_) | EdgeKind::Default | EdgeKind::Indirect(_))
}

fn add_saturating(to: &mut u64, count: u64) {
    *to = to.saturating_add(count);
}
