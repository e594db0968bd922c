//! Code transformations that a path profile suggests: turns the findings of [`advise`](crate::advise) into
//! [transformations](trodden_unit::transformations) for a build.
//!
//! | finding | transformation |
//! |---|---|
//! | how often each edge of the optimised code was taken | set branch weights, for block layout and register allocation |
//! | an earlier branch decides whether this iteration is the last | split the loop: the last iteration gets a separate copy |
//! | an earlier branch decides a later one | duplicate the blocks between them for executions through the deciding edge |

use crate::advise::{Advice, AdviseOptions, ConditionalOutcomes, CorrelatedBranches, ExecutedBlockPath, ExecutedPaths, advise};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{CutReason, Edge, Node};
use trodden_profile::model::Profile;
use trodden_profile::paths::FunctionPaths;
use trodden_unit::transformations::{BranchWeights, CopyEdgeWeights, LastIterations, PathCopy};
use trodden_unit::{EdgeKind, FunctionMap, MapError, Transformation, TransformationPlan};

/// Thresholds for transformations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformationOptions {
    /// Minimum saving by duplicated blocks, as a share (0 to 1) of all executed instructions.
    pub min_saving: f64,
    /// Minimum share (0 to 1) of all executed instructions for a loop from which the last iteration is split off.
    pub min_loop_share: f64,
    /// Maximum number of instructions duplicated for one edge.
    pub max_copied: u64,
}

impl Default for TransformationOptions {
    fn default() -> TransformationOptions {
        TransformationOptions { min_saving: 0.0005, min_loop_share: 0.01, max_copied: 80 }
    }
}

/// A function with its transformations.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformedFunction {
    /// The function's source file, as in the unit map.
    pub source: String,
    /// The function's name.
    pub function: String,
    /// Hash of the graph's shape.
    pub shape: u64,
    /// The function's executed instructions, as a share (0 to 1) of the program's executed instructions.
    pub share: f64,
    /// The transformations.
    pub transformations: Vec<Transformation>,
}

impl TransformedFunction {
    /// Returns true if there is any transformation other than branch weights.
    pub fn is_changed(&self) -> bool {
        self.transformations.iter().any(|d| !matches!(d, Transformation::Weights(_)))
    }
}

/// Returns the executed functions with their transformations, in descending order of executed instructions.
pub fn find_transformations(profile: &Profile, options: &TransformationOptions) -> Result<Vec<TransformedFunction>, MapError> {
    let mut functions = Vec::new();
    for (_, unit, map) in profile.functions() {
        let paths = FunctionPaths::decode(map, unit.counts_of(map))?;
        let executed = executed_instructions(map, &paths.blocks, 0..map.blocks.len() as u32);
        functions.push((executed, &unit.map.source, map, paths));
    }
    let total = functions.iter().fold(0u64, |sum, f| sum.saturating_add(f.0));
    functions.sort_by_key(|f| Reverse(f.0));
    let mut out = Vec::new();
    for (executed, source, map, paths) in functions.iter().filter(|f| f.0 > 0) {
        let entries = paths.blocks.first().copied().unwrap_or(0);
        let mut transformations = vec![Transformation::Weights(BranchWeights { entries, edges: paths.edges.clone() })];
        if *executed as f64 >= options.min_saving * total as f64 {
            transformations.extend(transformations_for(map, paths, total, options));
        }
        let share = *executed as f64 / total as f64;
        out.push(TransformedFunction { source: (*source).clone(), function: map.name.clone(), shape: map.shape, share, transformations });
    }
    Ok(out)
}

/// Collects the transformations in a plan that can be written to a file.
pub fn build_plan(transformed: &[TransformedFunction]) -> TransformationPlan {
    let mut transformations = TransformationPlan::default();
    transformed.iter().for_each(|d| transformations.add(&d.source, &d.function, d.shape, d.transformations.clone()));
    transformations
}

/// Returns the transformations of one function. `total` is the number of instructions that the program executed.
pub fn transformations_for(map: &FunctionMap, paths: &FunctionPaths, total: u64, options: &TransformationOptions) -> Vec<Transformation> {
    let walks = ExecutedPaths::new(map, paths);
    let (mut copies, mut iterations) = (Vec::new(), Vec::new());
    let mut entries = BTreeSet::new();
    for finding in advise(map, paths, None, &AdviseOptions::default()) {
        let Advice::Correlated(found) = finding.advice else { continue };
        if let Some(last) = find_last_iterations(&walks, &found, total, options) {
            if !iterations.contains(&last) {
                iterations.push(last);
            }
            continue;
        }
        if (finding.saves as f64) < options.min_saving * total as f64 {
            continue;
        }
        // If some executions took a different edge, the copy would have to keep the test. Only certain outcomes are therefore used.
        for given in found.given.iter().filter(|g| g.is_certain()) {
            if let Some(copy) = copy_for_edge(&walks, &found, given, options)
                && entries.insert(copy.entry)
            {
                copies.push(Transformation::Copy(copy));
            }
        }
    }
    copies.into_iter().chain(iterations.into_iter().map(Transformation::LastIterations)).collect()
}

/// Returns the transformation that splits off a loop's last iteration, if an earlier branch decides whether an iteration is the last and
/// the loop is hot enough.
fn find_last_iterations(
    walks: &ExecutedPaths,
    found: &CorrelatedBranches,
    total: u64,
    options: &TransformationOptions,
) -> Option<LastIterations> {
    if !found.last_iteration || found.stretch.obstacle.is_some() {
        return None;
    }
    let (head, body) = find_innermost_loop(walks, found.earlier, found.later)?;
    let leaves = |edge: Edge| !body.contains(&walks.map.graph.to(edge));
    let decided: Vec<Edge> = found.given.iter().filter_map(|g| g.decides).collect();
    let decides = decided.iter().any(|e| leaves(*e)) && decided.iter().any(|e| !leaves(*e));
    let weight = executed_instructions(walks.map, &walks.blocks, body.iter().map(|b| b.0));
    let latches = back_edges(walks.map).filter(|(_, to)| *to == head).map(|(from, _)| from).collect();
    (decides && weight as f64 >= options.min_loop_share * total as f64).then_some(LastIterations { head, latches })
}

/// Copies the blocks between two branches for executions through a deciding edge, if they can be copied and are few enough.
fn copy_for_edge(
    walks: &ExecutedPaths,
    found: &CorrelatedBranches,
    given: &ConditionalOutcomes,
    options: &TransformationOptions,
) -> Option<PathCopy> {
    let matching: Vec<(&ExecutedBlockPath, usize, usize)> =
        walks.walks.iter().filter_map(|w| find_block_range(w, given.edge, found.later).map(|(a, b)| (w, a, b))).collect();
    let blocks: BTreeSet<Node> = matching.iter().flat_map(|(walk, from, to)| walk.blocks[*from..=*to].iter().copied()).collect();
    let copied: u64 = blocks.iter().map(|b| u64::from(walks.map.blocks[b.index()].instructions)).sum();
    if copied > options.max_copied || found.stretch.obstacle.is_some() || !walks.map.graph.edge(given.edge).cases.is_empty() {
        return None;
    }
    let mut through: BTreeMap<Edge, u64> = BTreeMap::new();
    for (walk, from, to) in &matching {
        for edge in walk.edges.get(*from..=*to).unwrap_or_default() {
            *through.entry(*edge).or_default() += walk.count;
        }
    }
    let graph = &walks.map.graph;
    let last = |edge: Edge| {
        let copied = through.get(&edge).copied().unwrap_or(0);
        let kept = walks.edges[edge.index()].saturating_sub(copied);
        (blocks.contains(&graph.from(edge)) && graph.kind(edge) != EdgeKind::Reach).then_some(CopyEdgeWeights { edge, copied, kept })
    };
    let weights = graph.edges().filter_map(last).collect();
    Some(PathCopy { entry: given.edge, blocks: topological_order(walks.map, &blocks)?, weights })
}

/// Returns the indices, in the walk, of the block after `edge` and of the block `later`.
fn find_block_range(walk: &ExecutedBlockPath, edge: Edge, later: Node) -> Option<(usize, usize)> {
    let from = walk.edges.iter().position(|e| *e == edge)? + 1;
    let to = walk.blocks.iter().position(|b| *b == later)?;
    (from <= to).then_some((from, to))
}

/// Returns the head and the blocks of the innermost loop that contains both blocks.
fn find_innermost_loop(walks: &ExecutedPaths, one: Node, other: Node) -> Option<(Node, BTreeSet<Node>)> {
    let loops = crate::advise::natural_loops(walks.map);
    let both = loops.into_iter().filter(|(_, body)| body.contains(&one) && body.contains(&other));
    both.min_by_key(|(_, body)| body.len())
}

/// Sorts blocks topologically, or returns `None` if they contain a cycle.
fn topological_order(map: &FunctionMap, blocks: &BTreeSet<Node>) -> Option<Vec<Node>> {
    let cut: BTreeSet<Edge> = map.cuts.iter().map(|(edge, _)| *edge).collect();
    let graph = &map.graph;
    let is_inner = |(from, to): &(Node, Node)| blocks.contains(from) && blocks.contains(to);
    let real = graph.edges().filter(|e| graph.kind(*e) != EdgeKind::Reach && !cut.contains(e));
    let edges: Vec<(Node, Node)> = real.map(|e| (graph.from(e), graph.to(e))).filter(is_inner).collect();
    let (mut remaining, mut order) = (blocks.clone(), Vec::new());
    while !remaining.is_empty() {
        let next = *remaining.iter().find(|b| !edges.iter().any(|(from, to)| to == *b && remaining.contains(from)))?;
        remaining.remove(&next);
        order.push(next);
    }
    Some(order)
}

fn back_edges(map: &FunctionMap) -> impl Iterator<Item = (Node, Node)> {
    let back = map.cuts.iter().filter(|(_, reason)| *reason == CutReason::Back);
    back.map(|(edge, _)| (map.graph.from(*edge), map.graph.to(*edge)))
}

fn executed_instructions(map: &FunctionMap, executions: &[u64], blocks: impl IntoIterator<Item = u32>) -> u64 {
    let of = |b: u32| executions.get(b as usize).copied().unwrap_or(0).saturating_mul(u64::from(map.blocks[b as usize].instructions));
    blocks.into_iter().fold(0, |sum, b| sum.saturating_add(of(b)))
}
