//! Finds loops whose branches depend on each other, so that the iterations follow fewer patterns than independent branches would produce.
//!
//! An iteration is the piece of a path from the loop's head to the back edge or to an exit edge; its *pattern* is its sequence of edges. If
//! the branches were independent, the entropy of the patterns would be the sum of the branches' entropies. The difference, in bits per
//! iteration, is the total correlation of the branches, which comes from tests that repeat each other. The estimated saving is one test per
//! bit.
//!
//! Only loops without inner loops or other cuts are analysed, since otherwise an iteration is not within a single path.

use super::statistics::entropy;
use super::walks::ExecutedPaths;
use super::{AdviseOptions, INSTRUCTIONS_PER_BRANCH};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::{CutReason, Edge, Node};

/// Share of the iterations that the reported patterns cover. A loop that needs more than [`MAX_PATTERNS_PER_LOOP`] patterns is not
/// reported.
const COVERED_ITERATIONS_SHARE: f64 = 0.9;
const MAX_PATTERNS_PER_LOOP: usize = 16;
/// Minimum saving, in bits per iteration.
const MIN_SAVED_BITS_PER_ITERATION: f64 = 0.2;
/// A branch decides the pattern if, given its outcome, at most this share of the pattern's entropy remains.
const MAX_REMAINING_SHARE: f64 = 0.2;

/// A loop and the patterns of its iterations.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopPatterns {
    /// The loop's head.
    pub head: Node,
    /// Number of iterations, including iterations that leave the loop.
    pub iterations: u64,
    /// Number of iterations that returned to the head.
    pub returns_to_head: u64,
    /// Number of distinct patterns.
    pub distinct: usize,
    /// The most frequent patterns, which together cover nine tenths of the iterations.
    pub patterns: Vec<LoopPattern>,
    /// Entropy of the patterns, in bits per iteration.
    pub entropy: f64,
    /// Sum of the entropies of the loop's branches, in bits per iteration.
    pub branches_entropy: f64,
    /// Number of the loop's branches with several executed outcomes.
    pub branches: usize,
    /// A branch that every iteration executes and that nearly decides the pattern.
    pub split: Option<PatternSplitBranch>,
}

/// A pattern of iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopPattern {
    /// The edges that an iteration with this pattern takes, in order.
    pub edges: Vec<Edge>,
    /// Number of iterations with this pattern.
    pub count: u64,
}

/// A branch that distinguishes the patterns of its loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PatternSplitBranch {
    /// The branch's block.
    pub block: Node,
    /// Conditional entropy of the patterns, given the branch's outcome, in bits per iteration.
    pub remaining: f64,
}

impl LoopPatterns {
    /// Returns an upper bound on the number of instructions that could be saved.
    pub fn max_saved_instructions(&self) -> u64 {
        (self.saved_bits() * self.iterations as f64) as u64 * INSTRUCTIONS_PER_BRANCH
    }

    /// Returns the total correlation of the branches, in bits per iteration.
    pub fn saved_bits(&self) -> f64 {
        (self.branches_entropy - self.entropy).max(0.0)
    }
}

/// Finds the loops whose iterations follow few patterns, and whose counts and savings exceed the thresholds.
pub fn find(walks: &ExecutedPaths, nest: &BTreeMap<Node, BTreeSet<Node>>, options: &AdviseOptions) -> Vec<LoopPatterns> {
    let hot = |head: &Node| walks.blocks.get(head.index()).is_some_and(|c| *c >= options.min_count);
    let uncut = nest.iter().filter(|(head, body)| hot(head) && !contains_cut(walks, **head, body));
    let found = uncut.filter_map(|(head, body)| count_patterns(walks, *head, body));
    found
        .filter(|l| {
            l.iterations >= options.min_count && l.saved_bits() >= MIN_SAVED_BITS_PER_ITERATION && l.patterns.len() <= MAX_PATTERNS_PER_LOOP
        })
        .collect()
}

fn contains_cut(walks: &ExecutedPaths, head: Node, body: &BTreeSet<Node>) -> bool {
    let edge = |e: &Edge| walks.map.graph.edge(*e);
    let inside = |e: &Edge| body.contains(&edge(e).from) && body.contains(&edge(e).to);
    let closes = |(e, reason): &(Edge, CutReason)| *reason == CutReason::Back && edge(e).to == head;
    walks.map.cuts.iter().any(|cut| inside(&cut.0) && !closes(cut))
}

/// Counts the patterns of a loop. An iteration that ends at a call that did not return is not counted.
fn count_patterns(walks: &ExecutedPaths, head: Node, body: &BTreeSet<Node>) -> Option<LoopPatterns> {
    let mut counts: HashMap<&[Edge], u64> = HashMap::new();
    for walk in &walks.walks {
        let Some(from) = walk.blocks.iter().position(|b| *b == head) else { continue };
        let inside = walk.blocks[from..].iter().take_while(|b| body.contains(b)).count();
        let Some(edges) = walk.edges.get(from..from + inside) else { continue };
        let count = counts.entry(edges).or_default();
        *count = count.saturating_add(walk.count);
    }
    let mut patterns: Vec<LoopPattern> = counts.into_iter().map(|(e, count)| LoopPattern { edges: e.to_vec(), count }).collect();
    patterns.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.edges.cmp(&b.edges)));
    let iterations: u64 = patterns.iter().map(|p| p.count).sum();
    if iterations == 0 {
        return None;
    }
    let back = |p: &&LoopPattern| p.edges.last().is_some_and(|e| walks.map.graph.to(*e) == head);
    let returns_to_head = patterns.iter().filter(back).map(|p| p.count).sum();
    let branches = LoopBranches::new(walks, &patterns);
    let entropy = entropy(patterns.iter().map(|p| p.count));
    let (split, branches_entropy, distinct) = (branches.find_split(&patterns, entropy), branches.entropy(iterations), patterns.len());
    let mut covered = 0;
    patterns.retain(|p| {
        let more = (covered as f64) < COVERED_ITERATIONS_SHARE * iterations as f64;
        covered += p.count;
        more
    });
    Some(LoopPatterns {
        head,
        iterations,
        returns_to_head,
        distinct,
        patterns,
        entropy,
        branches_entropy,
        branches: branches.edges.len(),
        split,
    })
}

/// A loop's branches with several executed outcomes, each with the executions of its outcomes within the loop.
struct LoopBranches {
    edges: BTreeMap<Node, BTreeMap<Edge, u64>>,
}

impl LoopBranches {
    fn new(walks: &ExecutedPaths, patterns: &[LoopPattern]) -> LoopBranches {
        let mut edges: BTreeMap<Node, BTreeMap<Edge, u64>> = BTreeMap::new();
        for pattern in patterns {
            for &edge in &pattern.edges {
                *edges.entry(walks.source_block(edge)).or_default().entry(edge).or_default() += pattern.count;
            }
        }
        edges.retain(|_, counts| counts.len() > 1);
        LoopBranches { edges }
    }

    fn entropy(&self, iterations: u64) -> f64 {
        let bits = |counts: &BTreeMap<Edge, u64>| entropy(counts.values().copied()) * counts.values().sum::<u64>() as f64;
        self.edges.values().map(bits).sum::<f64>() / iterations as f64
    }

    /// Finds the branch whose outcome best predicts an iteration's pattern, among the branches that every iteration executes. Returns
    /// `None` if too much of the patterns' entropy remains once the outcome is known.
    fn find_split(&self, patterns: &[LoopPattern], uncut: f64) -> Option<PatternSplitBranch> {
        let iterations: u64 = patterns.iter().map(|p| p.count).sum();
        let each = self.edges.iter().filter(|(_, counts)| counts.values().sum::<u64>() == iterations && counts.len() < patterns.len());
        let remaining_bits = |counts: &BTreeMap<Edge, u64>| {
            let patterns_with = |edge: &Edge| patterns.iter().filter(|p| p.edges.contains(edge)).map(|p| p.count).collect::<Vec<u64>>();
            counts.iter().map(|(edge, count)| entropy(patterns_with(edge)) * *count as f64).sum::<f64>() / iterations as f64
        };
        let best = each
            .map(|(block, counts)| PatternSplitBranch { block: *block, remaining: remaining_bits(counts) })
            .min_by(|a, b| a.remaining.total_cmp(&b.remaining));
        best.filter(|s| s.remaining <= MAX_REMAINING_SHARE * uncut)
    }
}
