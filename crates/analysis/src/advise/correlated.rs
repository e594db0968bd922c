//! Branches that an earlier branch on the same path decides.
//!
//! Branch correlation after Mueller and Whalley ("Avoiding conditional branches by code replication", PLDI 1995) and
//! Bodík, Gupta and Soffa ("Interprocedural conditional branch elimination", PLDI 1997), found by counts instead of
//! proofs: it holds for the executions that were counted.
//!
//! A later branch is a finding if it is undecided by itself, and some outcome of the earlier branch decides it. Of several earlier
//! branches the one that decides most executions is reported; of equal ones the nearest. The saving is a test for each decided execution.

use super::AdviseOptions;
use super::nest::enters_loop;
use super::pairs::{ContingencyTable, Pairs};
use super::statistics::entropy;
use super::walks::Walks;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::{Edge, Node};
use trodden_unit::BlockKind;

/// A branch counts as undecided by itself if no outcome has more than this share of its executions.
const UNDECIDED: f64 = 0.99;
/// The least share of its executions that must be decided, and the least share of its entropy that the earlier branch must give.
const LEAST_DECIDED: f64 = 0.1;

/// A later branch that an earlier one decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlated {
    /// The block of the earlier branch.
    pub earlier: Node,
    /// The block of the later branch.
    pub later: Node,
    /// Executions of the later branch.
    pub executions: u64,
    /// Executions of the later branch after the earlier branch on the same path.
    pub together: u64,
    /// The outcomes of the later branch.
    pub outcomes: Vec<BranchOutcome>,
    /// The outcomes of the earlier branch, each with the outcomes of the later branch after it.
    pub given: Vec<Given>,
    /// Executions of the later branch that are decided.
    pub decided: u64,
    /// The outcomes of the later branch on paths without the earlier one before it.
    pub otherwise: Vec<BranchOutcome>,
    /// Entropy of the later branch, bits for each execution.
    pub entropy: f64,
    /// Mutual information of the later branch and the earlier one (its outcome, or that it was not executed), bits for each execution of
    /// the later one.
    pub information: f64,
    /// Conditional entropy of the later branch given the whole path before it, bits for each of its executions.
    pub left_by_path: f64,
    /// The later branch is in a loop that the earlier one is not in: the decided executions are first iterations of the loop.
    pub first_iteration: bool,
    /// Both branches are in a loop that the later one may leave: the earlier one decides whether this iteration is the last.
    pub last_iteration: bool,
    /// The blocks between them on paths where the later one is decided.
    pub stretch: Stretch,
}

/// An outcome of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchOutcome {
    /// The edge.
    pub edge: Edge,
    /// Executions of the edge.
    pub count: u64,
}

/// An outcome of the earlier branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The edge.
    pub edge: Edge,
    /// Executions of the later branch after it.
    pub count: u64,
    /// The outcomes of the later branch after it.
    pub outcomes: Vec<BranchOutcome>,
    /// The edge that the later branch takes then, if it is decided.
    pub decides: Option<Edge>,
}

impl Given {
    /// Whether the later branch had one single outcome after this one.
    pub fn is_certain(&self) -> bool {
        self.decides.is_some() && self.outcomes.len() == 1
    }
}

/// The blocks between two branches. A copy for the decided case would consist of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The blocks after the earlier branch up to the later one, which is included.
    pub blocks: Vec<Node>,
    /// Their instructions.
    pub instructions: u64,
    /// A block that cannot be copied: it has a call that returns twice, or is a target of an indirect branch.
    pub obstacle: Option<Node>,
}

/// All decided branches of a function.
pub fn find(walks: &Walks, pairs: &Pairs, nest: &BTreeMap<Node, BTreeSet<Node>>, options: &AdviseOptions) -> Vec<Correlated> {
    let left = left_by_path(walks);
    let mut found: Vec<Correlated> = Vec::new();
    for (&later, tables) in &pairs.tables {
        let outcomes: Vec<BranchOutcome> =
            walks.taken_edges(later).into_iter().map(|edge| BranchOutcome { edge, count: walks.edges[edge.index()] }).collect();
        let executions: u64 = outcomes.iter().map(|o| o.count).sum();
        let most = outcomes.iter().map(|o| o.count).max().unwrap_or(0);
        if executions < options.min_count || most as f64 > UNDECIDED * executions as f64 {
            continue;
        }
        let candidates = tables.iter().map(|(&earlier, table)| (earlier, table, given(table, options)));
        let weighed = candidates.map(|(earlier, table, given)| (decided(&given), earlier, table, given));
        let Some((decided, earlier, table, given)) = weighed.max_by(|a, b| a.0.cmp(&b.0).then_with(|| nearer(b.2, a.2))) else { continue };
        let otherwise = otherwise(&outcomes, table);
        let entropy = bits(&outcomes) / executions as f64;
        let still = given.iter().map(|g| bits(&g.outcomes)).sum::<f64>() + bits(&otherwise);
        let information = (entropy - still / executions as f64).max(0.0);
        let enough =
            decided >= options.min_count && decided as f64 >= LEAST_DECIDED * executions as f64 && information >= LEAST_DECIDED * entropy;
        if !enough {
            continue;
        }
        found.push(Correlated {
            earlier,
            later,
            executions,
            together: table.total(),
            outcomes,
            decided,
            otherwise,
            entropy,
            information,
            left_by_path: left.get(&later).copied().unwrap_or(0.0),
            first_iteration: enters_loop(nest, earlier, later),
            last_iteration: leaves_loop(walks, nest, earlier, later),
            stretch: stretch(walks, later, &given),
            given,
        });
    }
    found
}

/// Whether some edge of the later branch leaves a loop that both are in.
fn leaves_loop(walks: &Walks, nest: &BTreeMap<Node, BTreeSet<Node>>, earlier: Node, later: Node) -> bool {
    let mut both = nest.values().filter(|body| body.contains(&earlier) && body.contains(&later));
    both.any(|body| walks.taken_edges(later).iter().any(|e| !body.contains(&walks.map.edges[e.index()].to)))
}

/// Whether the branches of one table are nearer to each other on average than those of another.
fn nearer(a: &ContingencyTable, b: &ContingencyTable) -> std::cmp::Ordering {
    let mean = |t: &ContingencyTable| t.distance as f64 / t.total() as f64;
    mean(a).total_cmp(&mean(b))
}

/// The outcomes of the later branch after each outcome of the earlier branch.
fn given(table: &ContingencyTable, options: &AdviseOptions) -> Vec<Given> {
    let mut all = Vec::new();
    for (edge, count) in table.by_earlier() {
        let cells = table.cells.iter().filter(|((earlier, _), _)| *earlier == edge);
        let outcomes: Vec<BranchOutcome> = cells.map(|((_, later), count)| BranchOutcome { edge: *later, count: *count }).collect();
        let most = outcomes.iter().max_by_key(|o| o.count).expect("an outcome was counted");
        let decides = most.count as f64 >= options.decided * count as f64 && count >= options.min_count;
        all.push(Given { edge, count, decides: decides.then_some(most.edge), outcomes });
    }
    all
}

/// Entropy of a branch's outcomes, for all executions together.
fn bits(outcomes: &[BranchOutcome]) -> f64 {
    entropy(outcomes.iter().map(|o| o.count)) * outcomes.iter().map(|o| o.count as f64).sum::<f64>()
}

/// The outcomes of the later branch on paths without the earlier one.
fn otherwise(outcomes: &[BranchOutcome], table: &ContingencyTable) -> Vec<BranchOutcome> {
    let behind = table.by_later();
    let rest =
        outcomes.iter().map(|o| BranchOutcome { edge: o.edge, count: o.count - behind.get(&o.edge).copied().unwrap_or(0).min(o.count) });
    rest.filter(|o| o.count > 0).collect()
}

fn decided(given: &[Given]) -> u64 {
    given.iter().filter(|g| g.decides.is_some()).map(|g| g.count).sum()
}

/// For each branch its conditional entropy given the whole path before it.
fn left_by_path(walks: &Walks) -> HashMap<Node, f64> {
    let mut edges: HashMap<(Node, i64), Vec<(Edge, u64)>> = HashMap::new();
    for walk in &walks.walks {
        for (at, edge) in walks.decisions(walk) {
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

/// The blocks between the deciding edges and the later branch, on the paths that take them.
fn stretch(walks: &Walks, later: Node, given: &[Given]) -> Stretch {
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
    Stretch { blocks: blocks.into_iter().collect(), instructions, obstacle }
}
