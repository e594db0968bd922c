//! Decodes the counters of one function into paths. Each counter counts one path of the function's acyclic graph.
//!
//! A *complete* path ends at a return or at a cut edge, usually a loop's back edge. A path that ends with a `Reach` edge is a prefix, which
//! is counted before a call that may not return. If the call did not return, the path is *unfinished*. The number of such executions is
//! `unfinished(prefix) = reached(prefix) - complete paths that continue it - unfinished paths that continue it to later calls`. It is
//! negative if a forked process completed paths that its parent began.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use trodden_flow::{Dag, DagEdge, DagEdgeId, Edge, Node, Numbering, Origin};
use trodden_unit::{BlockKind, EdgeKind, FunctionMap, MapError};

/// A function's executed paths.
#[derive(Clone, Debug, Default)]
pub struct FunctionPaths {
    /// Complete paths, sorted by descending count, then by ID.
    pub complete: Vec<PathCount>,
    /// Unfinished paths, by ID.
    pub unfinished: Vec<UnfinishedPath>,
    /// Executions that neither completed a path nor ended at a call: a signal interrupted them, and the program ended or jumped elsewhere.
    pub lost: Vec<LostPathFragment>,
    /// Number of executions of each block, on complete and unfinished paths.
    pub blocks: Vec<u64>,
    /// Number of executions of each edge in the function's graph. Always 0 for `Reach` edges, since control never takes them.
    pub edges: Vec<u64>,
}

/// A complete path and its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCount {
    /// ID of the path.
    pub id: u64,
    /// Number of executions.
    pub count: u64,
    /// Edges of the path in the acyclic graph.
    pub path: Vec<DagEdgeId>,
    /// Its blocks.
    pub blocks: Vec<Node>,
    /// How it begins.
    pub beginning: PathStart,
    /// How it ends.
    pub end: PathEnd,
}

/// How a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStart {
    /// At the function's entry.
    Entry,
    /// The path begins at the target of a cut edge, usually a loop's back edge. If several cut edges lead to this block, the value is the
    /// first of them.
    After(Edge),
}

/// How a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEnd {
    /// The path ends at an edge to the exit: the function returned, or was left by an exception or `longjmp`.
    Exit(Edge),
    /// The path ends at a cut edge, usually a loop's back edge.
    Cut(Edge),
    /// The path ends in a block without successors.
    Stop,
}

/// A path that ended at a call which did not return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedPath {
    /// ID of the prefix.
    pub id: u64,
    /// Number of executions. Negative if forked processes completed more of these paths than they began, since the parent had begun them.
    pub count: i64,
    /// Blocks of the path. The last one contains the call.
    pub blocks: Vec<Node>,
    /// Edges of the path in the acyclic graph, without the final `Reach` edge.
    pub path: Vec<DagEdgeId>,
    /// How it begins.
    pub beginning: PathStart,
}

/// A complete or unfinished path and its count.
#[derive(Clone, Copy, Debug)]
pub struct CountedPath<'p> {
    /// ID of the path or prefix.
    pub id: u64,
    /// Number of executions; may be negative if the path is unfinished ([`UnfinishedPath::count`]).
    pub count: i128,
    /// Edges of the path in the acyclic graph.
    pub path: &'p [DagEdgeId],
    /// Its blocks.
    pub blocks: &'p [Node],
    /// How it begins.
    pub beginning: PathStart,
    /// How the path ends; `None` for an unfinished path.
    pub end: Option<PathEnd>,
}

impl CountedPath<'_> {
    /// Returns whether the path is complete.
    pub fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the number of executions, or 0 if negative.
    pub fn executions(&self) -> u64 {
        clamp_to_u64(self.count)
    }
}

impl<'p> From<&'p PathCount> for CountedPath<'p> {
    fn from(p: &'p PathCount) -> CountedPath<'p> {
        CountedPath { id: p.id, count: p.count.into(), path: &p.path, blocks: &p.blocks, beginning: p.beginning, end: Some(p.end) }
    }
}

impl<'p> From<&'p UnfinishedPath> for CountedPath<'p> {
    fn from(u: &'p UnfinishedPath) -> CountedPath<'p> {
        CountedPath { id: u.id, count: u.count.into(), path: &u.path, blocks: &u.blocks, beginning: u.beginning, end: None }
    }
}

/// Paths that began after a cut edge, at the same block, and neither completed nor ended at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPathFragment {
    /// The block where the paths began.
    pub head: Node,
    /// Number of executions. Negative if a forked process continued paths that its parent had begun.
    pub count: i64,
}

impl FunctionPaths {
    /// Decodes the counts of a function, given as pairs of path ID and count. Fails if the map is corrupt, or if an ID denotes no path.
    pub fn decode(function: &FunctionMap, counts: impl IntoIterator<Item = (u64, u64)>) -> Result<FunctionPaths, MapError> {
        let PathDecoder { dag, numbering, .. } = PathDecoder::from_function(function)?;
        let (mut complete, mut reached) = (Vec::new(), Vec::new());
        for (id, count) in counts {
            let path = numbering.path(&dag, id).ok_or_else(|| function.inconsistency(format!("path {id} does not exist")))?;
            match path_end(function, &dag, &path) {
                None => reached.push((id, count, path)),
                Some(end) => {
                    let (beginning, blocks) = (path_start(&dag, &path), path_blocks(&dag, &path));
                    complete.push(PathCount { id, count, path, blocks, beginning, end });
                }
            }
        }
        let unfinished = match function.is_partial() {
            // Unfinished paths cannot be computed here: executions that reached a call may have completed a path that the function does not
            // count.
            true => Vec::new(),
            false => find_unfinished(function, &dag, &numbering, &complete, reached),
        };
        let mut paths = FunctionPaths { complete, unfinished, lost: Vec::new(), blocks: Vec::new(), edges: Vec::new() };
        paths.complete.sort_by_key(|p| (Reverse(p.count), p.id));
        paths.derive_block_and_edge_counts(function, &dag);
        Ok(paths)
    }

    /// Iterates over all paths, complete ones first.
    pub fn all(&self) -> impl Iterator<Item = CountedPath<'_>> {
        self.complete.iter().map(CountedPath::from).chain(self.unfinished.iter().map(CountedPath::from))
    }

    /// Finds a path by its ID and by whether it is complete. Complete and unfinished paths may have the same ID.
    pub fn find(&self, is_complete: bool, id: u64) -> Option<CountedPath<'_>> {
        self.all().find(|p| p.is_complete() == is_complete && p.id == id)
    }

    /// Returns the number of calls to the function.
    pub fn call_count(&self) -> u64 {
        self.blocks.first().copied().unwrap_or(0)
    }

    /// Returns the sum of the complete paths' counts; `u64::MAX` if it overflows.
    pub fn total(&self) -> u64 {
        self.complete.iter().fold(0, |sum, p| sum.saturating_add(p.count))
    }

    /// Returns whether every path that began was completed.
    pub fn are_all_paths_finished(&self) -> bool {
        self.unfinished.is_empty() && self.lost.is_empty()
    }

    /// Computes the numbers of executions of blocks and edges, and the lost paths, from the complete and unfinished paths.
    pub(crate) fn derive_block_and_edge_counts(&mut self, function: &FunctionMap, dag: &Dag) {
        let mut blocks = vec![0i128; function.blocks.len()];
        let mut edges = vec![0i128; function.graph.edge_count()];
        let mut imbalance = HashMap::<Node, i128>::new();
        for path in self.all() {
            path.blocks.iter().for_each(|b| blocks[b.index()] += path.count);
            for &edge in path.path {
                if let Origin::Real(e) | Origin::Leave(e) = dag.edge(edge).origin {
                    edges[e.index()] += path.count;
                }
            }
            if let PathStart::After(_) = path.beginning {
                *imbalance.entry(path.blocks[0]).or_default() -= path.count;
            }
        }
        for cut in dag.cuts() {
            *imbalance.entry(function.graph.to(cut.edge)).or_default() += edges[cut.edge.index()];
        }
        if function.is_partial() {
            imbalance.clear();
        }
        // Blocks for which the number of paths that begin says nothing about lost paths: after a call that may return twice, more paths may
        // begin than reached the call; in the entry block, paths begin both at calls to the function and at back edges.
        let is_balanced =
            |node: &Node| *node != dag.entry() && function.blocks.get(node.index()).is_some_and(|b| b.kind != BlockKind::Continuation);
        self.lost = imbalance
            .into_iter()
            .filter(|(head, n)| *n != 0 && is_balanced(head))
            .map(|(head, n)| LostPathFragment { head, count: clamp_to_i64(n) })
            .collect();
        self.lost.sort_by_key(|l| l.head);
        self.blocks = blocks.into_iter().map(clamp_to_u64).collect();
        self.edges = edges.into_iter().map(clamp_to_u64).collect();
    }
}

/// Decodes a function's path IDs one at a time.
#[derive(Debug)]
pub struct PathDecoder<'a> {
    function: &'a FunctionMap,
    dag: Dag,
    numbering: Numbering,
}

/// A decoded path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedPath {
    /// Its blocks.
    pub blocks: Vec<Node>,
    /// How it begins.
    pub beginning: PathStart,
    /// How the path ends; `None` for a prefix that ends at a call in the last block.
    pub end: Option<PathEnd>,
}

impl<'a> PathDecoder<'a> {
    /// Creates a decoder for a function's paths.
    pub fn from_function(function: &'a FunctionMap) -> Result<PathDecoder<'a>, MapError> {
        let dag = function.dag()?;
        check_path_ends(function, &dag).map_err(|what| function.inconsistency(what))?;
        let numbering = function.numbering(&dag)?;
        Ok(PathDecoder { function, dag, numbering })
    }

    /// Decodes a path ID; `None` if the function has no path with this ID.
    pub fn decode(&self, id: u64) -> Option<DecodedPath> {
        let path = self.numbering.path(&self.dag, id)?;
        let end = path_end(self.function, &self.dag, &path);
        Some(DecodedPath { blocks: path_blocks(&self.dag, &path), beginning: path_start(&self.dag, &path), end })
    }
}

/// Returns how a path ends; `None` for a prefix that ends at a call that may not return.
pub fn path_end(function: &FunctionMap, dag: &Dag, path: &[DagEdgeId]) -> Option<PathEnd> {
    let last = path.last().map(|e| dag.edge(*e).origin);
    match last {
        Some(Origin::Real(e)) if function.graph.kind(e) == EdgeKind::Reach => None,
        Some(Origin::Real(e)) => Some(PathEnd::Exit(e)),
        Some(Origin::Leave(e)) => Some(PathEnd::Cut(e)),
        _ => Some(PathEnd::Stop),
    }
}

/// Returns how a path begins.
pub fn path_start(dag: &Dag, path: &[DagEdgeId]) -> PathStart {
    match path.first().map(|e| dag.edge(*e).origin) {
        Some(Origin::Enter(e)) => PathStart::After(e),
        _ => PathStart::Entry,
    }
}

/// Returns the blocks of a path, from the function's entry or the target of a cut edge to the last block before the exit.
pub fn path_blocks(dag: &Dag, path: &[DagEdgeId]) -> Vec<Node> {
    let entered = matches!(path.first().map(|e| dag.edge(*e).origin), Some(Origin::Enter(_)));
    let inner = path.iter().map(|e| dag.edge(*e).from);
    inner.skip(usize::from(entered)).collect()
}

/// Computes the unfinished paths. Visits the calls in reverse topological order, so that the unfinished paths that continue a prefix are
/// known before the prefix.
fn find_unfinished(
    function: &FunctionMap,
    dag: &Dag,
    numbering: &Numbering,
    complete: &[PathCount],
    reached: Vec<(u64, u64, Vec<DagEdgeId>)>,
) -> Vec<UnfinishedPath> {
    let mut calls = CallPrefixes::new(function, dag);
    for path in complete {
        calls.subtract_continued(&path.path, i128::from(path.count));
    }
    for (_, count, mut path) in reached {
        path.pop();
        calls.add_prefix(&path, i128::from(count));
    }
    let mut out = Vec::new();
    while let Some(((Reverse(position), sum), remaining)) = calls.remaining.pop_first() {
        if remaining == 0 {
            continue;
        }
        let at = dag.order()[position];
        let reach = calls.reach[at.index()].expect("prefixes end before calls");
        let id = (sum + function.values[reach.index()]) as u64;
        let mut path = numbering.path(dag, id).expect("the prefix and the edge after it are a path");
        path.pop();
        calls.subtract_continued(&path, remaining);
        let mut prefix_blocks = path_blocks(dag, &path);
        prefix_blocks.push(at);
        out.push(UnfinishedPath { id, count: clamp_to_i64(remaining), blocks: prefix_blocks, beginning: path_start(dag, &path), path });
    }
    out.sort_by_key(|u| u.id);
    out
}

/// How often path prefixes that end before calls were executed.
///
/// A prefix is identified by its last block and the sum of its edge values. The sum is unique among the prefixes that end in this block: if
/// two had the same sum, continuing both over the same edges would give two paths with the same ID.
struct CallPrefixes<'a> {
    dag: &'a Dag,
    values: &'a [i64],
    /// The `Reach` edge that leaves each block; `None` if the block has no call that may not return.
    reach: Vec<Option<DagEdgeId>>,
    /// Index of each node in the topological order.
    position: Vec<usize>,
    /// The number of times each prefix was reached, minus the executions that are known to have continued. The key is the last block's
    /// position and the sum of edge values, with the prefixes furthest from the entry first.
    remaining: BTreeMap<(Reverse<usize>, i64), i128>,
}

impl<'a> CallPrefixes<'a> {
    fn new(function: &'a FunctionMap, dag: &'a Dag) -> CallPrefixes<'a> {
        let mut reach = vec![None; dag.node_count()];
        for id in dag.edge_ids() {
            if let Origin::Real(e) = dag.edge(id).origin
                && function.graph.kind(e) == EdgeKind::Reach
            {
                reach[dag.edge(id).from.index()] = Some(id);
            }
        }
        let mut position = vec![0; dag.node_count()];
        for (i, node) in dag.order().iter().enumerate() {
            position[node.index()] = i;
        }
        CallPrefixes { dag, values: &function.values, reach, position, remaining: BTreeMap::new() }
    }

    /// Subtracts a path's count from the counts of all prefixes that the path continues, which are those that end before the path's last
    /// block.
    fn subtract_continued(&mut self, path: &[DagEdgeId], count: i128) {
        let mut sum = 0;
        for edge in path {
            let DagEdge { from: at, origin, .. } = self.dag.edge(*edge);
            // A path that begins after a cut edge starts with a dummy edge from the entry block, which is not part of the path.
            if self.reach[at.index()].is_some() && !matches!(origin, Origin::Enter(_)) {
                *self.remaining_count_at(at, sum) -= count;
            }
            sum += self.values[edge.index()];
        }
    }

    fn add_prefix(&mut self, path: &[DagEdgeId], count: i128) {
        let at = path.last().map_or(self.dag.entry(), |e| self.dag.edge(*e).to);
        let sum = path.iter().map(|e| self.values[e.index()]).sum();
        *self.remaining_count_at(at, sum) += count;
    }

    fn remaining_count_at(&mut self, at: Node, sum: i64) -> &mut i128 {
        self.remaining.entry((Reverse(self.position[at.index()]), sum)).or_default()
    }
}

/// Checks the assumptions of the decoder: no path begins at the exit, and every `Reach` edge ends its path, because prefixes are decoded by
/// appending this edge.
fn check_path_ends(function: &FunctionMap, dag: &Dag) -> Result<(), String> {
    let begins_at_exit = |e: &DagEdge| matches!(e.origin, Origin::Enter(_)) && e.to == dag.exit();
    if let Some(bad) = dag.edges().iter().position(begins_at_exit) {
        return Err(format!("edge {bad} of its path graph begins a path at the exit"));
    }
    let ends_at_call_before_exit =
        |e: &DagEdge| matches!(e.origin, Origin::Real(r) if function.graph.kind(r) == EdgeKind::Reach && e.to != dag.exit());
    match dag.edges().iter().position(ends_at_call_before_exit) {
        Some(bad) => Err(format!("edge {bad} of its path graph ends a path at a call but does not lead to the exit")),
        None => Ok(()),
    }
}

fn clamp_to_u64(count: i128) -> u64 {
    count.clamp(0, i128::from(u64::MAX)) as u64
}

fn clamp_to_i64(count: i128) -> i64 {
    count.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}
