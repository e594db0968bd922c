//! Finds branches whose outcome follows from an earlier branch on the same path.
//!
//! This is the branch correlation of Mueller and Whalley ("Avoiding conditional branches by code replication", PLDI 1995) and Bodík, Gupta
//! and Soffa ("Interprocedural conditional branch elimination", PLDI 1997). They prove it from the code, whereas this module infers it from
//! path counts, so it holds only for the counted executions. A branch is reported if it is hard to predict on its own, but an outcome of
//! the earlier branch decides it. If several earlier branches qualify, the one that decides the most executions is reported; ties go to the
//! nearest.

use super::AdviseOptions;
use super::nest::enters_loop;
use super::pairs::{BranchPairs, ContingencyTable};
use super::statistics::entropy;
use super::walks::ExecutedPaths;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::{Edge, Node};
use trodden_unit::BlockKind;

/// A branch is predictable on its own, and not reported, if one outcome has more than this share of its executions.
const MAX_UNDECIDED_SHARE: f64 = 0.99;
/// The earlier branch must decide at least this share of the later branch's executions, and explain at least the same share of its
/// entropy.
const MIN_DECIDED_SHARE: f64 = 0.1;

/// A branch whose outcome is decided by an earlier branch on the same path.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelatedBranches {
    /// The block of the earlier branch.
    pub earlier: Node,
    /// The block of the later branch.
    pub later: Node,
    /// Number of executions of the later branch.
    pub executions: u64,
    /// Number of executions of the later branch on paths where the earlier branch precedes it.
    pub together: u64,
    /// The outcomes of the later branch.
    pub outcomes: Vec<BranchOutcome>,
    /// For each outcome of the earlier branch, the outcomes of the later branch that followed it.
    pub given: Vec<ConditionalOutcomes>,
    /// Number of executions of the later branch whose outcome the earlier branch decided.
    pub decided: u64,
    /// The outcomes of the later branch on paths where the earlier branch does not precede it.
    pub otherwise: Vec<BranchOutcome>,
    /// Entropy of the later branch, in bits per execution.
    pub entropy: f64,
    /// Mutual information of both branches, in bits per execution of the later branch. Not executing the earlier branch counts as an
    /// outcome.
    pub information: f64,
    /// Conditional entropy of the later branch, given the whole path before it, in bits per execution.
    pub entropy_after_path: f64,
    /// True if the later branch is in a loop that does not contain the earlier branch. Decided executions are then in the loop's first
    /// iteration.
    pub first_iteration: bool,
    /// True if both branches are in a loop that the later branch may leave. The earlier branch then decides whether this iteration is the
    /// last.
    pub last_iteration: bool,
    /// The blocks between the two branches on paths where the later branch is decided.
    pub stretch: BlocksBetween,
}

/// An outcome of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchOutcome {
    /// The edge that the branch takes.
    pub edge: Edge,
    /// Number of executions of the edge.
    pub count: u64,
}

/// An outcome of the earlier branch, with the subsequent outcomes of the later branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalOutcomes {
    /// The edge taken at the earlier branch.
    pub edge: Edge,
    /// Number of executions of the later branch after this edge.
    pub count: u64,
    /// The outcomes of the later branch after this edge.
    pub outcomes: Vec<BranchOutcome>,
    /// The outcome of the later branch that follows from this edge, or `None` if the edge does not decide the later branch.
    pub decides: Option<Edge>,
}

impl ConditionalOutcomes {
    /// Returns true if all executions of the later branch after this edge had the same outcome.
    pub fn is_certain(&self) -> bool {
        self.decides.is_some() && self.outcomes.len() == 1
    }
}

/// The blocks between two branches. To save the later test in decided executions, a transformation would copy them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlocksBetween {
    /// The blocks after the earlier branch, up to and including the later branch.
    pub blocks: Vec<Node>,
    /// Number of instructions in these blocks.
    pub instructions: u64,
    /// A block that cannot be copied, because it calls a function that returns twice (such as `setjmp`) or is the target of an indirect
    /// branch. `None` if all blocks can be copied.
    pub obstacle: Option<Node>,
}

/// Finds all branches of a function that an earlier branch decides.
pub fn find(
    walks: &ExecutedPaths,
    pairs: &BranchPairs,
    nest: &BTreeMap<Node, BTreeSet<Node>>,
    options: &AdviseOptions,
) -> Vec<CorrelatedBranches> {
    let remaining_entropy = entropies_after_paths(walks);
    let mut found: Vec<CorrelatedBranches> = Vec::new();
    for (&later, tables) in &pairs.tables {
        let outcomes: Vec<BranchOutcome> =
            walks.taken_edges(later).into_iter().map(|edge| BranchOutcome { edge, count: walks.edges[edge.index()] }).collect();
        let executions: u64 = outcomes.iter().map(|o| o.count).sum();
        let max_count = outcomes.iter().map(|o| o.count).max().unwrap_or(0);
        if executions < options.min_count || max_count as f64 > MAX_UNDECIDED_SHARE * executions as f64 {
            continue;
        }
        let candidates = tables.iter().map(|(&earlier, table)| (earlier, table, compute_conditional_outcomes(table, options)));
        let weighed = candidates.map(|(earlier, table, given)| (count_decided(&given), earlier, table, given));
        let Some((decided, earlier, table, given)) = weighed.max_by(|a, b| a.0.cmp(&b.0).then_with(|| compare_distances(b.2, a.2))) else {
            continue;
        };
        let otherwise = outcomes_without_earlier(&outcomes, table);
        let entropy = total_bits(&outcomes) / executions as f64;
        let remaining = given.iter().map(|g| total_bits(&g.outcomes)).sum::<f64>() + total_bits(&otherwise);
        let information = (entropy - remaining / executions as f64).max(0.0);
        let is_significant = decided >= options.min_count
            && decided as f64 >= MIN_DECIDED_SHARE * executions as f64
            && information >= MIN_DECIDED_SHARE * entropy;
        if !is_significant {
            continue;
        }
        found.push(CorrelatedBranches {
            earlier,
            later,
            executions,
            together: table.total(),
            outcomes,
            decided,
            otherwise,
            entropy,
            information,
            entropy_after_path: remaining_entropy.get(&later).copied().unwrap_or(0.0),
            first_iteration: enters_loop(nest, earlier, later),
            last_iteration: leaves_common_loop(walks, nest, earlier, later),
            stretch: find_blocks_between(walks, later, &given),
            given,
        });
    }
    found
}

fn leaves_common_loop(walks: &ExecutedPaths, nest: &BTreeMap<Node, BTreeSet<Node>>, earlier: Node, later: Node) -> bool {
    let mut both = nest.values().filter(|body| body.contains(&earlier) && body.contains(&later));
    both.any(|body| walks.taken_edges(later).iter().any(|e| !body.contains(&walks.map.graph.to(*e))))
}

fn compare_distances(a: &ContingencyTable, b: &ContingencyTable) -> std::cmp::Ordering {
    let mean = |t: &ContingencyTable| t.distance as f64 / t.total() as f64;
    mean(a).total_cmp(&mean(b))
}

fn compute_conditional_outcomes(table: &ContingencyTable, options: &AdviseOptions) -> Vec<ConditionalOutcomes> {
    let mut all = Vec::new();
    for (edge, count) in table.by_earlier() {
        let cells = table.cells.iter().filter(|((earlier, _), _)| *earlier == edge);
        let outcomes: Vec<BranchOutcome> = cells.map(|((_, later), count)| BranchOutcome { edge: *later, count: *count }).collect();
        let most = outcomes.iter().max_by_key(|o| o.count).expect("an outcome was counted");
        let decides = most.count as f64 >= options.decided * count as f64 && count >= options.min_count;
        all.push(ConditionalOutcomes { edge, count, decides: decides.then_some(most.edge), outcomes });
    }
    all
}

/// Returns the entropy of a branch's outcomes in bits, summed over all executions.
fn total_bits(outcomes: &[BranchOutcome]) -> f64 {
    entropy(outcomes.iter().map(|o| o.count)) * outcomes.iter().map(|o| o.count as f64).sum::<f64>()
}

/// Returns the outcomes of the later branch on paths where the earlier branch does not precede it.
fn outcomes_without_earlier(outcomes: &[BranchOutcome], table: &ContingencyTable) -> Vec<BranchOutcome> {
    let after_earlier = table.by_later();
    let rest = outcomes
        .iter()
        .map(|o| BranchOutcome { edge: o.edge, count: o.count - after_earlier.get(&o.edge).copied().unwrap_or(0).min(o.count) });
    rest.filter(|o| o.count > 0).collect()
}

fn count_decided(given: &[ConditionalOutcomes]) -> u64 {
    given.iter().filter(|g| g.decides.is_some()).map(|g| g.count).sum()
}

/// Returns each branch's conditional entropy, given the complete path before the branch, in bits per execution.
fn entropies_after_paths(walks: &ExecutedPaths) -> HashMap<Node, f64> {
    let mut edges: HashMap<(Node, i64), Vec<(Edge, u64)>> = HashMap::new();
    for walk in &walks.walks {
        for (at, edge) in walks.taken_decisions(walk) {
            let taken = edges.entry((walk.blocks[at], walk.sums[at])).or_default();
            match taken.iter_mut().find(|(e, _)| *e == edge) {
                Some((_, count)) => *count = count.saturating_add(walk.count),
                None => taken.push((edge, walk.count)),
            }
        }
    }
    let mut sums: HashMap<Node, (f64, u64)> = HashMap::new();
    for ((block, _), taken) in edges {
        let count: u64 = taken.iter().map(|t| t.1).sum();
        let sum = sums.entry(block).or_default();
        sum.0 += entropy(taken.iter().map(|t| t.1)) * count as f64;
        sum.1 += count;
    }
    sums.into_iter().map(|(block, (bits, count))| (block, bits / count as f64)).collect()
}

fn find_blocks_between(walks: &ExecutedPaths, later: Node, given: &[ConditionalOutcomes]) -> BlocksBetween {
    let deciding: BTreeSet<Edge> = given.iter().filter(|g| g.decides.is_some()).map(|g| g.edge).collect();
    let mut blocks = BTreeSet::new();
    for walk in &walks.walks {
        let from = walk.edges.iter().position(|e| deciding.contains(e));
        let to = walk.blocks.iter().position(|b| *b == later);
        if let (Some(from), Some(to)) = (from, to) {
            blocks.extend(walk.blocks.get(from + 1..=to).unwrap_or_default());
        }
    }
    let block = |b: &Node| &walks.map.blocks[b.index()];
    let instructions = blocks.iter().map(|b| u64::from(block(b).instructions)).sum();
    let obstacle = blocks.iter().find(|b| block(b).kind != BlockKind::Code).copied();
    BlocksBetween { blocks: blocks.into_iter().collect(), instructions, obstacle }
}
