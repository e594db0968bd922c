//! Path expressions for functions whose paths are cut: pieces that were executed one after the other are one path.
//!
//! A function with too many paths is cut at chosen edges ([`CutReason::Limit`]), and each piece
//! is counted by itself. A path of the function is a *chain*: a piece that begins at the entry or at the head of a
//! loop, pieces that each begin where the one before was cut, and one that ends otherwise. Which pieces followed each
//! other was not counted, so a chain may never have been executed though its pieces were. Counts give a lower bound: if
//! `total` executions pass from piece to piece at a block, `a` of them along the chain up to there and `b` along its
//! next piece, then at least `a + b - total` executions take both.
//!
//! Invariants: cut edges of these kinds close no loop, so that chains are finite. A chain of which one execution is certain was executed;
//! if no chain of executed pieces matches, no path did. Complexity: all chains are tried, up to [`MOST_CHAINS`]; if there are
//! more, the answer is never "no".

use super::{Expression, ExpressionSequence, Gap, Matcher};
use std::collections::HashMap;
use trodden_flow::{CutReason, Edge, Node};
use trodden_profile::paths::{Beginning, CountedPath, FunctionPaths, PathEnd};
use trodden_unit::FunctionMap;

/// Most chains that are tried.
const MOST_CHAINS: usize = 200_000;

/// A piece of the function's paths, by whether it was completed and its number.
pub type PathPiece = (bool, u64);

/// Pieces that were executed one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The pieces in order.
    pub pieces: Vec<PathPiece>,
    /// Lower bound of its executions.
    pub at_least: u64,
    /// Blocks of all pieces.
    pub blocks: Vec<Node>,
}

/// The result for an expression in a function whose paths are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// Chains that match and were executed for certain.
    pub certain: Vec<Chain>,
    /// Whether other matching chains may have been executed.
    pub is_open: bool,
}

/// Whether a function's paths are cut because there would be too many, so that a path may be several pieces.
pub fn is_cut(function: &FunctionMap) -> bool {
    function.cuts.iter().any(|(_, reason)| is_join(*reason))
}

fn is_join(reason: CutReason) -> bool {
    matches!(reason, CutReason::Limit | CutReason::EachEdge)
}

/// The cuts that lead to a block: whether some are joins, and an edge of another kind (a loop's back edge, if there is one).
fn cuts_to(function: &FunctionMap, block: Node) -> (bool, Option<Edge>) {
    let cuts = || function.cuts.iter().filter(|(cut, _)| function.edges.get(cut.index()).is_some_and(|e| e.to == block));
    let others = || cuts().filter(|(_, reason)| !is_join(*reason));
    let other = others().find(|(_, reason)| *reason == CutReason::Back).or_else(|| others().next());
    (cuts().any(|(_, reason)| is_join(*reason)), other.map(|(cut, _)| *cut))
}

/// Whether a counted path is certainly a path of the function, and no piece of one.
pub fn is_whole(function: &FunctionMap, blocks: &[Node], end: Option<PathEnd>) -> bool {
    let begins = blocks.first().is_some_and(|first| !cuts_to(function, *first).0);
    begins && !matches!(end, Some(PathEnd::Cut(edge)) if function.cuts.iter().any(|(cut, reason)| *cut == edge && is_join(*reason)))
}

impl Expression {
    /// Whether one piece of a path of this function cannot decide a match: a place that must be nowhere on the path may be on another
    /// piece, or a piece that begins where loops or calls of the function begin may be the rest of another path.
    pub fn needs_whole_paths(&self, function: &FunctionMap) -> bool {
        let excludes = |gap: &Gap| matches!(gap, Gap::Without(places) if !places.is_empty());
        let is_uncertain = |(cut, _): &(Edge, CutReason)| {
            function.edges.get(cut.index()).is_some_and(|e| {
                let (joins, other) = cuts_to(function, e.to);
                joins && (other.is_some() || e.to == Node(0))
            })
        };
        let needs = |s: &ExpressionSequence| {
            let behind = s.steps.last().map_or(&s.before, |(_, gap)| gap);
            let excluded = !s.never.is_empty() || (s.begin.is_none() && excludes(&s.before)) || (s.end.is_none() && excludes(behind));
            excluded || (s.begin.is_some() && function.cuts.iter().any(is_uncertain))
        };
        is_cut(function) && self.patterns.iter().flatten().any(needs)
    }
}

/// Searches for chains of executed pieces that match.
pub fn join(matcher: &Matcher, function: &FunctionMap, paths: &FunctionPaths) -> Joined {
    let parts = paths.all().filter(|p| p.count > 0 && !p.blocks.is_empty()).collect();
    let (begun, total, joined) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut search = Search { matcher, function, begun, total, joined, left: MOST_CHAINS, found: Joined::default(), parts };
    let mut arrived: HashMap<Node, i128> = HashMap::new();
    for (at, part) in search.parts.iter().enumerate() {
        if let Some((to, is_join)) = cut_to(function, part.end) {
            *arrived.entry(to).or_default() += part.count;
            *search.joined.entry(to).or_default() += if is_join { part.count } else { 0 };
        }
        if let Beginning::After(_) = part.beginning {
            search.begun.entry(part.blocks[0]).or_default().push(at);
            *search.total.entry(part.blocks[0]).or_default() += part.count;
        }
    }
    for (node, count) in arrived {
        let total = search.total.entry(node).or_default();
        *total = count.max(*total);
    }
    for at in 0..search.parts.len() {
        if let Some(at_least) = search.starts(at) {
            search.extend(&mut vec![at], at_least);
        }
    }
    search.found.is_open |= search.left == 0;
    search.found
}

/// Where a piece that ends at a cut leads, and whether the path goes on there.
fn cut_to(function: &FunctionMap, end: Option<PathEnd>) -> Option<(Node, bool)> {
    let Some(PathEnd::Cut(edge)) = end else { return None };
    let reason = function.cuts.iter().find(|(cut, _)| *cut == edge).map(|(_, reason)| *reason);
    function.edges.get(edge.index()).map(|e| (e.to, reason.is_some_and(is_join)))
}

struct Search<'s> {
    matcher: &'s Matcher<'s>,
    function: &'s FunctionMap,
    parts: Vec<CountedPath<'s>>,
    /// Pieces that begin after a cut, by their first block.
    begun: HashMap<Node, Vec<usize>>,
    /// Executions that pass from piece to piece, by block.
    total: HashMap<Node, i128>,
    /// Those of them in which a path goes on, and none begins.
    joined: HashMap<Node, i128>,
    left: usize,
    found: Joined,
}

impl Search<'_> {
    /// Executions of a piece that certainly begin a path, if a path can begin with it.
    fn starts(&self, at: usize) -> Option<i128> {
        let CountedPath { beginning, blocks, count, .. } = self.parts[at];
        let begins = beginning == Beginning::Entry || cuts_to(self.function, blocks[0]).1.is_some();
        // Others of these executions may be the rest of paths that were cut here.
        begins.then(|| count - self.joined.get(&blocks[0]).copied().unwrap_or(0))
    }

    /// Tries all extensions of a chain with a given number of certain executions.
    fn extend(&mut self, chain: &mut Vec<usize>, at_least: i128) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let last = *chain.last().expect("chains have a piece");
        let Some((to, true)) = cut_to(self.function, self.parts[last].end) else { return self.check(chain, at_least) };
        let total = self.total.get(&to).copied().unwrap_or(0);
        for at in self.begun.get(&to).cloned().unwrap_or_default() {
            chain.push(at);
            self.extend(chain, at_least + self.parts[at].count - total);
            chain.pop();
        }
    }

    fn check(&mut self, chain: &[usize], at_least: i128) {
        let blocks: Vec<Node> = chain.iter().flat_map(|at| self.parts[*at].blocks).copied().collect();
        let (first, last) = (&self.parts[chain[0]], &self.parts[chain[chain.len() - 1]]);
        let beginning = match (first.beginning, cuts_to(self.function, blocks[0]).1) {
            (Beginning::After(_), Some(edge)) => Beginning::After(edge),
            (beginning, _) => beginning,
        };
        if !self.matcher.matches(&blocks, beginning, last.end) {
            return;
        }
        match u64::try_from(at_least) {
            Ok(at_least @ 1..) => {
                let pieces = chain.iter().map(|at| (self.parts[*at].is_complete(), self.parts[*at].id)).collect();
                self.found.certain.push(Chain { pieces, at_least, blocks });
            }
            _ => self.found.is_open = true,
        }
    }
}
