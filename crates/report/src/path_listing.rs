//! Lists a path as source lines: where it starts, the lines it executes, the direction of each branch, and where it ends.
//!
//! The optimiser reorders the instructions of a block. Therefore a block's lines are listed in source order, but the line of its branch
//! comes last. Neighbouring steps on the same line are merged. Inlined code is listed below the chain of calls that it was inlined through.
//! The direction of a branch is described by the line it leads to and the line it does not lead to (`→ 14, not 20`). The condition's value
//! is not shown, because compilers negate conditions.

pub use crate::turn::{ShownPathEnd, ShownPathStart, TakenBranch};
use crate::view::{Function, file_of, inline_chain};
use crate::words;
use trodden_flow::{CutReason, Edge, Node, Origin};
use trodden_profile::{CountedPath, PathEnd, PathStart};
use trodden_unit::{BlockKind, EdgeKind, SourcePosition};

/// A path as a list of source lines.
#[derive(Clone, Debug, PartialEq)]
pub struct PathListing {
    /// How the path begins.
    pub begins: ShownPathStart,
    /// The lines that the path executes, in order.
    pub steps: Vec<ListingStep>,
    /// How the path ends.
    pub ends: ShownPathEnd,
}

pub(crate) struct ListedPath<'v, 'a> {
    pub function: &'v Function<'a>,
    pub id: u64,
    pub listing: PathListing,
}

impl ListedPath<'_, '_> {
    pub fn name(&self) -> String {
        format!("{}:{}", self.function.name.short, self.id)
    }
}

/// A line of a listing, or a block whose line is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct ListingStep {
    /// The path's blocks that have code from the line.
    pub blocks: Vec<Node>,
    /// The calls of inlined functions, outermost first, and finally the line itself. Empty if the line is unknown.
    pub chain: Vec<SourcePosition>,
    /// The directions that branches on the line took.
    pub turns: Vec<TakenBranch>,
}

impl PathListing {
    /// Lists a path. An unfinished path ends at a call that did not return.
    pub fn from_path<'p>(function: &Function, path: impl Into<CountedPath<'p>>) -> PathListing {
        let path = path.into();
        let edges = taken_edges(function, path.path);
        let ends = match path.end {
            Some(PathEnd::Exit(edge)) => {
                let edge = tail_call_before_exit(function, &edges, edge).unwrap_or(edge);
                let flow = function.map.graph.edge(edge);
                ShownPathEnd::Exit { edge, kind: flow.kind, line: last_line(function, flow.from) }
            }
            Some(PathEnd::Cut(edge)) => {
                let to = function.map.graph.to(edge);
                ShownPathEnd::Cut { reason: reason_for_cut(function, edge), to, line: first_line(function, to) }
            }
            Some(PathEnd::Stop) => ShownPathEnd::Stop { line: path.blocks.last().and_then(|b| last_line(function, *b)) },
            None => {
                let at = path.blocks.last().copied().unwrap_or(Node(0));
                let lines = || lines_of_function_itself(function, at, true);
                ShownPathEnd::Call { at, lines: lines().min().zip(lines().max()) }
            }
        };
        PathListing {
            begins: find_path_begin(function, path.beginning),
            steps: listing_steps(function, path.blocks, &edges, path.end.is_none()),
            ends,
        }
    }

    /// Joins the listings of the pieces in which a path was counted. `pieces` are in execution order and must not be empty.
    pub fn join_pieces(pieces: Vec<PathListing>) -> PathListing {
        let joined = pieces.into_iter().reduce(|first, next| {
            let mut steps = first.steps;
            steps.extend(next.steps);
            PathListing { begins: first.begins, steps, ends: next.ends }
        });
        joined.unwrap_or(PathListing { begins: ShownPathStart::Entry, steps: Vec::new(), ends: ShownPathEnd::Stop { line: None } })
    }

    /// Lists the lines of the function itself, abbreviated to about `limit` lines: `12-14-..-17`.
    pub fn outline(&self, limit: usize) -> String {
        let mut lines: Vec<u32> = self.steps.iter().filter_map(|s| s.chain.first()).map(|p| p.line).collect();
        lines.dedup();
        let mut words: Vec<String> = match lines.is_empty() {
            false => lines.iter().map(u32::to_string).collect(),
            true => self.steps.iter().flat_map(|s| &s.blocks).map(|b| format!("b{}", b.0)).collect(),
        };
        if words.len() > limit {
            let tail = limit / 2;
            words.splice(limit - tail..words.len() - tail, ["..".to_string()]);
        }
        words.join("-")
    }
}

/// Returns the tail call edge into the block from which a path returns; `None` if there is none. Such a path is shown as ending with the
/// tail call.
fn tail_call_before_exit(function: &Function, edges: &[Option<Edge>], exit: Edge) -> Option<Edge> {
    let before = edges.iter().flatten().rev().copied().find(|e| *e != exit)?;
    let flow = function.map.graph.edge(before);
    (flow.kind == EdgeKind::TailCall && flow.to == function.map.graph.from(exit)).then_some(before)
}

/// Returns the direction that an edge represents. Returns `None` if the edge is not a branch outcome, or if it leads to a dispatch block,
/// whose own branch shows the direction.
pub(crate) fn find_taken_branch(function: &Function, edge: Edge) -> Option<TakenBranch> {
    let flow = function.map.graph.edge(edge);
    let shown_later = matches!(flow.kind, EdgeKind::Indirect(_)) && block_kind(function, flow.to) == Some(BlockKind::Dispatch);
    let is_decision = matches!(
        flow.kind,
        EdgeKind::True | EdgeKind::False | EdgeKind::Case(_) | EdgeKind::Default | EdgeKind::Indirect(_) | EdgeKind::Unwind
    );
    (is_decision && !shown_later).then(|| TakenBranch { kind: flow.kind, text: describe_direction(function, edge), edge })
}

/// Describes an edge's direction. A branch with two successors is described by the targets of both edges, and any other edge by its
/// condition.
fn describe_direction(function: &Function, edge: Edge) -> String {
    let flow = function.map.graph.edge(edge);
    if !matches!(flow.kind, EdgeKind::True | EdgeKind::False) {
        return words::describe_edge_condition(&flow);
    }
    let siblings = function.map.graph.out(flow.from).iter().map(|e| function.map.graph.edge(*e));
    let Some(other) = siblings.filter(|e| matches!(e.kind, EdgeKind::True | EdgeKind::False)).find(|e| e.kind != flow.kind) else {
        return words::describe_edge_condition(&flow);
    };
    let (taken, not) = (EdgeTarget::find(function, flow.to), EdgeTarget::find(function, other.to));
    let from = function.map.blocks.get(flow.from.index()).and_then(|b| b.branch).map(|b| (b.file, b.line));
    let same = |f: fn(&SourcePosition) -> (u32, u32)| taken.at.map(|p| f(&p)) == not.at.map(|p| f(&p));
    let words = match (same(|p| (p.file, p.line)), same(|p| (p.line, p.column))) {
        (false, _) => [taken, not].map(|s| s.line(function, from)),
        (true, false) => [taken, not].map(|s| s.column(function)),
        (true, true) => [taken, not].map(|s| s.block(function)),
    };
    format!("→ {}, not {}", words[0], words[1])
}

/// Returns the first known source position at an edge's target, and at the targets of the same branch's other edges.
pub(crate) fn edge_positions(function: &Function, edge: Edge) -> (Option<SourcePosition>, Vec<Option<SourcePosition>>) {
    let flow = function.map.graph.edge(edge);
    let siblings = function.map.graph.out(flow.from).iter().filter(|other| **other != edge);
    let siblings = siblings.map(|other| function.map.graph.edge(*other)).filter(|other| other.kind != EdgeKind::Reach);
    let others = siblings.map(|other| EdgeTarget::find(function, other.to).at);
    (EdgeTarget::find(function, flow.to).at, others.collect())
}

#[derive(Clone, Copy)]
struct EdgeTarget {
    block: Node,
    at: Option<SourcePosition>,
}

impl EdgeTarget {
    /// Starts at `block` and follows single successors to the first block that has a line.
    fn find(function: &Function, mut block: Node) -> EdgeTarget {
        const MAX_BLOCKS: usize = 8;
        for _ in 0..MAX_BLOCKS {
            let at = block_chains(function, block, false).first().and_then(|c| c.last()).copied();
            match (at, function.map.graph.out(block)) {
                (None, [only]) => block = function.map.graph.to(*only),
                _ => return EdgeTarget { block, at },
            }
        }
        EdgeTarget { block, at: None }
    }

    /// Formats the target's line. The column is added if the target is on the same line as the branch (`from`).
    fn line(self, function: &Function, from: Option<(u32, u32)>) -> String {
        match self.at {
            Some(p) if Some((p.file, p.line)) == from && p.column > 0 => self.column(function),
            Some(p) if Some(p.file) == from.map(|f| f.0) => p.line.to_string(),
            Some(p) => format!("{}:{}", file_of(function.unit_map(), p).map_or("?", words::base_name), p.line),
            None => self.block(function),
        }
    }

    fn column(self, function: &Function) -> String {
        self.at.map_or_else(|| self.block(function), |p| format!("{}:{}", p.line, p.column))
    }

    fn block(self, function: &Function) -> String {
        if self.block == function.map.exit() { "the end".into() } else { format!("block {}", self.block.0) }
    }
}

fn block_kind(function: &Function, block: Node) -> Option<BlockKind> {
    function.map.blocks.get(block.index()).map(|b| b.kind)
}

/// Returns the reason why paths are cut at an edge.
pub fn reason_for_cut(function: &Function, edge: Edge) -> CutReason {
    function.map.cuts.iter().find(|(cut, _)| *cut == edge).map_or(CutReason::Back, |(_, reason)| *reason)
}

/// Returns the first line of a block in the function's own source; `None` if it is unknown. Inlined code has the line of its call.
pub fn first_line(function: &Function, block: Node) -> Option<u32> {
    lines_of_function_itself(function, block, false).min()
}

/// Returns the last line of a block in the function's own source; `None` if it is unknown. Inlined code has the line of its call.
pub fn last_line(function: &Function, block: Node) -> Option<u32> {
    lines_of_function_itself(function, block, false).max()
}

/// Returns a block's lines in the function's own source. `stops` means that a path stops in a call of the block; lines after the call are
/// omitted.
fn lines_of_function_itself(function: &Function, block: Node, stops: bool) -> impl Iterator<Item = u32> {
    let map = function.unit_map();
    let block = function.map.blocks.get(block.index());
    let positions = block.into_iter().flat_map(move |b| {
        let (length, branch) = if stops { (b.up_to_calls as usize, None) } else { (b.positions.len(), b.branch) };
        b.positions.iter().take(length).copied().chain(branch)
    });
    positions.filter_map(move |p| inline_chain(map, p).first().map(|p| p.line)).filter(|line| *line > 0)
}

fn find_path_begin(function: &Function, beginning: PathStart) -> ShownPathStart {
    match beginning {
        PathStart::Entry => ShownPathStart::Entry,
        PathStart::After(edge) => {
            let at = function.map.graph.to(edge);
            // If paths are cut at several edges to this block, one of which is a back edge, the loop is given as the reason.
            let to = |(cut, _): &&(Edge, CutReason)| function.map.graph.get_edge(*cut).is_some_and(|e| e.to == at);
            let loops = function.map.cuts.iter().filter(to).any(|(_, reason)| *reason == CutReason::Back);
            let reason = if loops { CutReason::Back } else { reason_for_cut(function, edge) };
            ShownPathStart::AfterCut { reason, at, line: first_line(function, at) }
        }
    }
}

/// Returns, for each block of a path, the edge by which the path leaves it; `None` if there is no such edge.
fn taken_edges(function: &Function, path: &[trodden_flow::DagEdgeId]) -> Vec<Option<Edge>> {
    let origins = path.iter().map(|e| function.dag.edge(*e).origin);
    let leaving = origins.filter(|o| !matches!(o, Origin::Enter(_)));
    leaving
        .map(|origin| match origin {
            Origin::Real(e) | Origin::Leave(e) => Some(e),
            _ => None,
        })
        .collect()
}

/// Lists the lines of blocks with their branch directions. `stops` means that the path stops in a call of the last block; code after the
/// call is omitted.
fn listing_steps(function: &Function, blocks: &[Node], edges: &[Option<Edge>], stops: bool) -> Vec<ListingStep> {
    let mut steps: Vec<ListingStep> = Vec::new();
    for (at, &block) in blocks.iter().enumerate() {
        let turn = edges.get(at).copied().flatten().and_then(|edge| find_taken_branch(function, edge));
        if let (Some(last), Some(BlockKind::Dispatch)) = (steps.last_mut(), block_kind(function, block)) {
            last.turns.extend(turn);
            continue;
        }
        for step in block_steps(function, block, turn, stops && at + 1 == blocks.len()) {
            match steps.last_mut() {
                Some(last) if !step.chain.is_empty() && are_on_same_line(&last.chain, &step.chain) => {
                    last.blocks.extend(step.blocks);
                    last.blocks.dedup();
                    last.turns.extend(step.turns);
                }
                _ => steps.push(step),
            }
        }
    }
    steps
}

fn block_steps(function: &Function, block: Node, turn: Option<TakenBranch>, stops: bool) -> Vec<ListingStep> {
    let chains = block_chains(function, block, stops);
    if chains.is_empty() {
        // A block without lines is listed only if it has a branch, or if no block of the function has lines.
        let hidden = turn.is_none() && function.map.blocks.iter().any(|b| !b.positions.is_empty());
        return if hidden {
            Vec::new()
        } else {
            vec![ListingStep { blocks: vec![block], chain: Vec::new(), turns: turn.into_iter().collect() }]
        };
    }
    let mut steps: Vec<ListingStep> =
        chains.into_iter().map(|chain| ListingStep { blocks: vec![block], chain, turns: Vec::new() }).collect();
    if let (Some(last), Some(turn)) = (steps.last_mut(), turn) {
        last.turns.push(turn);
    }
    steps
}

/// Returns a block's positions in source order, each with the calls that it was inlined through. The branch is last if it has several
/// successors.
fn block_chains(function: &Function, block: Node, stops: bool) -> Vec<Vec<SourcePosition>> {
    let Some(known) = function.map.blocks.get(block.index()) else { return Vec::new() };
    let map = function.unit_map();
    let whole = |position: &SourcePosition| Some(inline_chain(map, *position)).filter(|_| position.line > 0);
    let mut chains: Vec<Vec<SourcePosition>> = {
        let length = if stops { known.up_to_calls as usize } else { known.positions.len() };
        known.positions.iter().take(length).filter_map(whole).collect()
    };
    chains.sort_by_key(|c| line_and_file_keys(c));
    chains.dedup_by(|a, b| are_on_same_line(a, b));
    let successors = function.map.graph.out(block).iter().filter(|e| function.map.graph.kind(**e) != EdgeKind::Reach).count();
    if let (Some(branch), true) = (known.branch.as_ref().and_then(whole), successors > 1 && !stops) {
        chains.retain(|c| !are_on_same_line(c, &branch));
        chains.push(branch);
    }
    chains
}

fn line_and_file_keys(chain: &[SourcePosition]) -> Vec<(u32, u32)> {
    chain.iter().map(|p| (p.line, p.file)).collect()
}

/// Returns true if two chains have the same line and were inlined at the same lines.
pub fn are_on_same_line(a: &[SourcePosition], b: &[SourcePosition]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.file, a.line) == (b.file, b.line))
}
