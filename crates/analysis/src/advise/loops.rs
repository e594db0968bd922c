//! Loops whose iterations fall into fewer patterns than their branches, each by itself, would let expect.
//!
//! An iteration of a loop is the piece of a path from the loop's head to the back edge, or to the edge that leaves the
//! loop; its *pattern* is its sequence of edges. Counts of edges give the entropy of each branch; were the branches
//! independent, that of patterns would be the sum. What it is less, in bits for each iteration, is what the branches
//! tell of each other (their total correlation): tests that are made twice in other words. That is the saving estimated
//! here, a test for each bit.
//!
//! Only loops without inner loops or other cuts are looked at: iterations of others are not within one path.

use super::statistics::entropy;
use super::walks::Walks;
use super::{AdviseOptions, TEST};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::{CutReason, Edge, Node};

/// Patterns told of cover this share of the iterations, and if that needs more patterns than these, the loop is not told of.
const COVER: f64 = 0.9;
const MOST_PATTERNS: usize = 16;
/// Bits for each iteration that must be saved.
const LEAST_SAVING: f64 = 0.2;
/// A branch decides the pattern if it leaves no more than this share of the pattern's entropy.
const SPLITS: f64 = 0.2;

/// A loop and the patterns of its iterations.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopPatterns {
    /// Where iterations begin.
    pub head: Node,
    /// Iterations, those that leave the loop included.
    pub iterations: u64,
    /// Those that went back to the head.
    pub rounds: u64,
    /// Number of different patterns.
    pub distinct: usize,
    /// The most frequent patterns, as many as cover nine tenths of the iterations.
    pub patterns: Vec<Pattern>,
    /// Entropy of the patterns, bits for each iteration.
    pub entropy: f64,
    /// Sum of the entropies of its branches, bits for each iteration.
    pub branches_entropy: f64,
    /// Number of branches in it that were taken in several ways.
    pub branches: usize,
    /// A branch that each iteration takes and that decides nearly all of the pattern.
    pub split: Option<Split>,
}

/// A pattern of iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Its edges.
    pub edges: Vec<Edge>,
    /// Its iterations.
    pub count: u64,
}

/// A branch that tells the patterns of its loop apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Its block.
    pub block: Node,
    /// Entropy of the patterns that is left when it is known, bits for each iteration.
    pub left: f64,
}

impl LoopPatterns {
    /// Instructions that could be saved at most.
    pub fn saves(&self) -> u64 {
        (self.saved_bits() * self.iterations as f64) as u64 * TEST
    }

    /// What the branches tell of each other, bits for each iteration.
    pub fn saved_bits(&self) -> f64 {
        (self.branches_entropy - self.entropy).max(0.0)
    }
}

/// The innermost loops worth telling of.
pub fn find(walks: &Walks, nest: &BTreeMap<Node, BTreeSet<Node>>, options: &AdviseOptions) -> Vec<LoopPatterns> {
    let hot = |head: &Node| walks.blocks.get(head.index()).is_some_and(|c| *c >= options.min_count);
    let whole = nest.iter().filter(|(head, body)| hot(head) && !is_cut_inside(walks, **head, body));
    let found = whole.filter_map(|(head, body)| patterns(walks, *head, body));
    found.filter(|l| l.iterations >= options.min_count && l.saved_bits() >= LEAST_SAVING && l.patterns.len() <= MOST_PATTERNS).collect()
}

/// Whether paths are cut within a round of a loop.
fn is_cut_inside(walks: &Walks, head: Node, body: &BTreeSet<Node>) -> bool {
    let edge = |e: &Edge| &walks.map.edges[e.index()];
    let inside = |e: &Edge| body.contains(&edge(e).from) && body.contains(&edge(e).to);
    let closes = |(e, reason): &(Edge, CutReason)| *reason == CutReason::Back && edge(e).to == head;
    walks.map.cuts.iter().any(|cut| inside(&cut.0) && !closes(cut))
}

/// Counts the patterns of a loop. Iterations that end in the middle, at a call that did not come back, have none.
fn patterns(walks: &Walks, head: Node, body: &BTreeSet<Node>) -> Option<LoopPatterns> {
    let mut counts: HashMap<&[Edge], u64> = HashMap::new();
    for walk in &walks.walks {
        let Some(from) = walk.blocks.iter().position(|b| *b == head) else { continue };
        let inside = walk.blocks[from..].iter().take_while(|b| body.contains(b)).count();
        let Some(edges) = walk.edges.get(from..from + inside) else { continue };
        let count = counts.entry(edges).or_default();
        *count = count.saturating_add(walk.count);
    }
    let mut patterns: Vec<Pattern> = counts.into_iter().map(|(e, count)| Pattern { edges: e.to_vec(), count }).collect();
    patterns.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.edges.cmp(&b.edges)));
    let iterations: u64 = patterns.iter().map(|p| p.count).sum();
    if iterations == 0 {
        return None;
    }
    let back = |p: &&Pattern| p.edges.last().is_some_and(|e| walks.map.edges[e.index()].to == head);
    let rounds = patterns.iter().filter(back).map(|p| p.count).sum();
    let branches = Branches::of(walks, &patterns);
    let entropy = entropy(patterns.iter().map(|p| p.count));
    let (split, branches_entropy, distinct) = (branches.split(&patterns, entropy), branches.entropy(iterations), patterns.len());
    let mut covered = 0;
    patterns.retain(|p| {
        let more = (covered as f64) < COVER * iterations as f64;
        covered += p.count;
        more
    });
    Some(LoopPatterns { head, iterations, rounds, distinct, patterns, entropy, branches_entropy, branches: branches.ways.len(), split })
}

/// The branches of a loop that were taken in several ways, with the counts of each way in the loop.
struct Branches {
    ways: BTreeMap<Node, BTreeMap<Edge, u64>>,
}

impl Branches {
    fn of(walks: &Walks, patterns: &[Pattern]) -> Branches {
        let mut ways: BTreeMap<Node, BTreeMap<Edge, u64>> = BTreeMap::new();
        for pattern in patterns {
            for &edge in &pattern.edges {
                *ways.entry(walks.from(edge)).or_default().entry(edge).or_default() += pattern.count;
            }
        }
        ways.retain(|_, counts| counts.len() > 1);
        Branches { ways }
    }

    fn entropy(&self, iterations: u64) -> f64 {
        let bits = |ways: &BTreeMap<Edge, u64>| entropy(ways.values().copied()) * ways.values().sum::<u64>() as f64;
        self.ways.values().map(bits).sum::<f64>() / iterations as f64
    }

    /// The branch of each iteration that leaves least of the patterns' entropy, if that is little.
    fn split(&self, patterns: &[Pattern], whole: f64) -> Option<Split> {
        let iterations: u64 = patterns.iter().map(|p| p.count).sum();
        let each = self.ways.iter().filter(|(_, ways)| ways.values().sum::<u64>() == iterations && ways.len() < patterns.len());
        let left = |ways: &BTreeMap<Edge, u64>| {
            let behind = |edge: &Edge| patterns.iter().filter(|p| p.edges.contains(edge)).map(|p| p.count).collect::<Vec<u64>>();
            ways.iter().map(|(edge, count)| entropy(behind(edge)) * *count as f64).sum::<f64>() / iterations as f64
        };
        let best = each.map(|(block, ways)| Split { block: *block, left: left(ways) }).min_by(|a, b| a.left.total_cmp(&b.left));
        best.filter(|s| s.left <= SPLITS * whole)
    }
}
