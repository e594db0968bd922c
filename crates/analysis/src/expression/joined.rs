//! Matches path expressions in functions that have too many paths to be counted whole.
//!
//! Such a function is cut at chosen edges ([`CutReason::Limit`]), and the pieces of its paths are counted separately. A path is then a
//! *chain* of pieces, each of which begins where its predecessor was cut. Chains are finite, because these edges close no loop.
//!
//! The counts do not tell which pieces followed each other, but they give a lower bound: if `total` executions pass from piece to piece at
//! a block, `a` of them along the chain so far and `b` along its next piece, then at least `a + b - total` take both. If no chain of
//! executed pieces matches, no path did. After `MAX_PIECE_CHAINS` chains, the search ends undecided.

use super::{AllowedBlocksBetween, ExpressionSequence, PathExpression, PathMatcher};
use std::collections::HashMap;
use trodden_flow::{CutReason, Edge, Node};
use trodden_profile::paths::{CountedPath, FunctionPaths, PathEnd, PathStart};
use trodden_unit::FunctionMap;

const MAX_PIECE_CHAINS: usize = 200_000;

/// Identifies a piece of a path by whether it was completed and by its path number.
pub type PathPieceKey = (bool, u64);

/// Pieces of a path that were executed one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPieceChain {
    /// The pieces in order.
    pub pieces: Vec<PathPieceKey>,
    /// Lower bound on the number of executions of the whole chain.
    pub min_count: u64,
    /// Blocks of all pieces.
    pub blocks: Vec<Node>,
}

/// The result of matching one path expression in one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedPaths {
    /// Matching chains that were certainly executed.
    pub certain: Vec<PathPieceChain>,
    /// True if other matching chains may have been executed.
    pub is_undecided: bool,
}

/// Returns true if a function has too many paths and is therefore cut, so that a path may consist of several pieces.
pub fn is_cut(function: &FunctionMap) -> bool {
    function.cuts.iter().any(|(_, reason)| separates_pieces(*reason))
}

fn separates_pieces(reason: CutReason) -> bool {
    matches!(reason, CutReason::Limit | CutReason::EachEdge)
}

/// Describes the cut edges that lead to a block: whether one of them joins two pieces of a path, and an edge that was cut for a different
/// reason, preferably a back edge.
fn find_cuts_to(function: &FunctionMap, block: Node) -> (bool, Option<Edge>) {
    let cuts = || function.cuts.iter().filter(|(cut, _)| function.graph.get_edge(*cut).is_some_and(|e| e.to == block));
    let others = || cuts().filter(|(_, reason)| !separates_pieces(*reason));
    let other = others().find(|(_, reason)| *reason == CutReason::Back).or_else(|| others().next());
    (cuts().any(|(_, reason)| separates_pieces(*reason)), other.map(|(cut, _)| *cut))
}

/// Returns true if a counted path is certain to be a complete path of the function, not a piece.
pub fn is_whole(function: &FunctionMap, blocks: &[Node], end: Option<PathEnd>) -> bool {
    let begins = blocks.first().is_some_and(|first| !find_cuts_to(function, *first).0);
    begins
        && !matches!(end, Some(PathEnd::Cut(edge)) if function.cuts.iter().any(|(cut, reason)| *cut == edge && separates_pieces(*reason)))
}

impl PathExpression {
    /// Returns true if one piece of a path is not enough to decide a match. An excluded place may be on a different piece, and a piece that
    /// begins at a loop head or at the function's entry may also be the rest of a different path.
    pub fn needs_whole_paths(&self, function: &FunctionMap) -> bool {
        let excludes = |gap: &AllowedBlocksBetween| matches!(gap, AllowedBlocksBetween::Without(places) if !places.is_empty());
        let is_uncertain = |(cut, _): &(Edge, CutReason)| {
            function.graph.get_edge(*cut).is_some_and(|e| {
                let (joins, other) = find_cuts_to(function, e.to);
                joins && (other.is_some() || e.to == Node(0))
            })
        };
        let needs = |s: &ExpressionSequence| {
            let last_gap = s.steps.last().map_or(&s.before, |(_, gap)| gap);
            let excluded = !s.never.is_empty() || (s.begin.is_none() && excludes(&s.before)) || (s.end.is_none() && excludes(last_gap));
            excluded || (s.begin.is_some() && function.cuts.iter().any(is_uncertain))
        };
        is_cut(function) && self.patterns.iter().flatten().any(needs)
    }
}

/// Searches for matching chains of executed pieces.
pub fn join(matcher: &PathMatcher, function: &FunctionMap, paths: &FunctionPaths) -> JoinedPaths {
    let pieces = paths.all().filter(|p| p.count > 0 && !p.blocks.is_empty()).collect();
    let (starting_at, total, joined) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut search = JoinSearch {
        matcher,
        function,
        starting_at,
        total,
        joined,
        remaining_chains: MAX_PIECE_CHAINS,
        found: JoinedPaths::default(),
        pieces,
    };
    let mut arrivals: HashMap<Node, i128> = HashMap::new();
    for (at, part) in search.pieces.iter().enumerate() {
        if let Some((to, is_join)) = cut_target(function, part.end) {
            *arrivals.entry(to).or_default() += part.count;
            *search.joined.entry(to).or_default() += if is_join { part.count } else { 0 };
        }
        if let PathStart::After(_) = part.beginning {
            search.starting_at.entry(part.blocks[0]).or_default().push(at);
            *search.total.entry(part.blocks[0]).or_default() += part.count;
        }
    }
    for (node, count) in arrivals {
        let total = search.total.entry(node).or_default();
        *total = count.max(*total);
    }
    for at in 0..search.pieces.len() {
        if let Some(at_least) = search.min_path_starts(at) {
            search.extend_chain(&mut vec![at], at_least);
        }
    }
    search.found.is_undecided |= search.remaining_chains == 0;
    search.found
}

/// Returns the block to which the cut edge at the end of a piece leads, and whether the same path continues there.
fn cut_target(function: &FunctionMap, end: Option<PathEnd>) -> Option<(Node, bool)> {
    let Some(PathEnd::Cut(edge)) = end else { return None };
    let reason = function.cuts.iter().find(|(cut, _)| *cut == edge).map(|(_, reason)| *reason);
    function.graph.get_edge(edge).map(|e| (e.to, reason.is_some_and(separates_pieces)))
}

struct JoinSearch<'s> {
    matcher: &'s PathMatcher<'s>,
    function: &'s FunctionMap,
    pieces: Vec<CountedPath<'s>>,
    /// The pieces that begin after a cut, by first block.
    starting_at: HashMap<Node, Vec<usize>>,
    /// Number of executions that pass from one piece to the next at each block: the larger of the numbers of executions of the pieces that
    /// end there and of the pieces that begin there.
    total: HashMap<Node, i128>,
    /// The part of `total` in which the same path continues, by block.
    joined: HashMap<Node, i128>,
    remaining_chains: usize,
    found: JoinedPaths,
}

impl JoinSearch<'_> {
    /// Returns the minimum number of a piece's executions that begin a path, or `None` if no path can begin with the piece.
    fn min_path_starts(&self, at: usize) -> Option<i128> {
        let CountedPath { beginning, blocks, count, .. } = self.pieces[at];
        let begins = beginning == PathStart::Entry || find_cuts_to(self.function, blocks[0]).1.is_some();
        // The other executions of the piece may continue paths that were cut here.
        begins.then(|| count - self.joined.get(&blocks[0]).copied().unwrap_or(0))
    }

    /// Tries all extensions of a chain that was executed at least `at_least` times.
    fn extend_chain(&mut self, chain: &mut Vec<usize>, at_least: i128) {
        if self.remaining_chains == 0 {
            return;
        }
        self.remaining_chains -= 1;
        let last = *chain.last().expect("chains have a piece");
        let Some((to, true)) = cut_target(self.function, self.pieces[last].end) else { return self.check_match(chain, at_least) };
        let total = self.total.get(&to).copied().unwrap_or(0);
        for at in self.starting_at.get(&to).cloned().unwrap_or_default() {
            chain.push(at);
            self.extend_chain(chain, at_least + self.pieces[at].count - total);
            chain.pop();
        }
    }

    fn check_match(&mut self, chain: &[usize], at_least: i128) {
        let blocks: Vec<Node> = chain.iter().flat_map(|at| self.pieces[*at].blocks).copied().collect();
        let (first, last) = (&self.pieces[chain[0]], &self.pieces[chain[chain.len() - 1]]);
        let beginning = match (first.beginning, find_cuts_to(self.function, blocks[0]).1) {
            (PathStart::After(_), Some(edge)) => PathStart::After(edge),
            (beginning, _) => beginning,
        };
        if !self.matcher.matches(&blocks, beginning, last.end) {
            return;
        }
        match u64::try_from(at_least) {
            Ok(min_count @ 1..) => {
                let pieces = chain.iter().map(|at| (self.pieces[*at].is_complete(), self.pieces[*at].id)).collect();
                self.found.certain.push(PathPieceChain { pieces, min_count, blocks });
            }
            _ => self.found.is_undecided = true,
        }
    }
}
