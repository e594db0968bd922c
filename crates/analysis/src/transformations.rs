//! Transformations of code that a profile of paths suggests: from the findings of [`advise`](crate::advise) to a
//! [transformations](trodden_unit::transformations) for a build.
//!
//! | finding | transformation |
//! |---|---|
//! | how often each edge of the optimised code was taken | branch weights are set, for block layout and registers |
//! | an earlier branch decides whether this iteration is the last | the last one gets a copy of the loop; the others follow one path |
//! | an earlier branch decides a later one | the blocks between them are copied for executions through the deciding edge |
//!
//! Copies and split loops need counts of paths: counts of edges cannot show them. All functions here are pure.

use crate::advise::{Advice, AdviseOptions, BlockWalk, Correlated, Given, Walks, advise};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{CutReason, Edge, Node};
use trodden_profile::model::Profile;
use trodden_profile::paths::FunctionPaths;
use trodden_unit::transformations::{LastIterations, PathCopy, SplitWeights, Weighed};
use trodden_unit::{EdgeKind, FunctionMap, MapError, Transformation, TransformationPlan};

/// Thresholds of transformations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformationOptions {
    /// The least share of all executed instructions that a copy must save, from 0 to 1.
    pub least_saving: f64,
    /// The least share of all executed instructions that a loop must have for its last iteration to be split off, from 0 to 1.
    pub least_loop: f64,
    /// The most instructions that are copied for one edge.
    pub most_copied: u64,
}

impl Default for TransformationOptions {
    fn default() -> TransformationOptions {
        TransformationOptions { least_saving: 0.0005, least_loop: 0.01, most_copied: 80 }
    }
}

/// A function with its transformations.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformedFunction {
    /// Its source file, as in the unit's map.
    pub source: String,
    /// Its name.
    pub function: String,
    /// Its shape.
    pub shape: u64,
    /// Instructions of its blocks that were executed, as a share of the program's.
    pub share: f64,
    /// The transformations.
    pub transformations: Vec<Transformation>,
}

impl TransformedFunction {
    /// Whether there is a transformation besides branch weights.
    pub fn is_changed(&self) -> bool {
        self.transformations.iter().any(|d| !matches!(d, Transformation::Weights(_)))
    }
}

/// The executed functions with their transformations; functions with most executed instructions first.
///
/// # Errors
/// A function's map is damaged.
pub fn transformed(profile: &Profile, options: &TransformationOptions) -> Result<Vec<TransformedFunction>, MapError> {
    let mut functions = Vec::new();
    for (_, unit, map) in profile.functions() {
        let paths = FunctionPaths::decode(map, unit.counts_of(map))?;
        let executed = instructions(map, &paths.blocks, 0..map.blocks.len() as u32);
        functions.push((executed, &unit.map.source, map, paths));
    }
    let total = functions.iter().fold(0u64, |sum, f| sum.saturating_add(f.0));
    functions.sort_by_key(|f| Reverse(f.0));
    let mut out = Vec::new();
    for (executed, source, map, paths) in functions.iter().filter(|f| f.0 > 0) {
        let entries = paths.blocks.first().copied().unwrap_or(0);
        let mut transformations = vec![Transformation::Weights(Weighed { entries, edges: paths.edges.clone() })];
        if *executed as f64 >= options.least_saving * total as f64 {
            transformations.extend(of_function(map, paths, total, options));
        }
        let share = *executed as f64 / total as f64;
        out.push(TransformedFunction { source: (*source).clone(), function: map.name.clone(), shape: map.shape, share, transformations });
    }
    Ok(out)
}

/// The transformations as a plan, which can be written to a file.
pub fn plan(transformed: &[TransformedFunction]) -> TransformationPlan {
    let mut transformations = TransformationPlan::default();
    transformed.iter().for_each(|d| transformations.add(&d.source, &d.function, d.shape, d.transformations.clone()));
    transformations
}

/// The transformations of a function, in a program that executed `total` instructions.
pub fn of_function(map: &FunctionMap, paths: &FunctionPaths, total: u64, options: &TransformationOptions) -> Vec<Transformation> {
    let walks = Walks::new(map, paths);
    let (mut copies, mut iterations) = (Vec::new(), Vec::new());
    let mut entries = BTreeSet::new();
    for finding in advise(map, paths, None, &AdviseOptions::default()) {
        let Advice::Correlated(found) = finding.advice else { continue };
        if let Some(last) = last_iterations(&walks, &found, total, options) {
            if !iterations.contains(&last) {
                iterations.push(last);
            }
            continue;
        }
        if (finding.saves as f64) < options.least_saving * total as f64 {
            continue;
        }
        // If some executions took another edge, the copy would have to keep the test.
        for given in found.given.iter().filter(|g| g.is_certain()) {
            if let Some(copy) = copy(&walks, &found, given, options)
                && entries.insert(copy.entry)
            {
                copies.push(Transformation::Copy(copy));
            }
        }
    }
    copies.into_iter().chain(iterations.into_iter().map(Transformation::LastIterations)).collect()
}

/// The loop whose last iteration an earlier branch decides, if the finding is of that kind and the loop has enough weight.
fn last_iterations(walks: &Walks, found: &Correlated, total: u64, options: &TransformationOptions) -> Option<LastIterations> {
    if !found.last_iteration || found.stretch.obstacle.is_some() {
        return None;
    }
    let (head, body) = innermost(walks, found.earlier, found.later)?;
    let leaves = |edge: Edge| !body.contains(&walks.map.edges[edge.index()].to);
    let decided: Vec<Edge> = found.given.iter().filter_map(|g| g.decides).collect();
    let decides = decided.iter().any(|e| leaves(*e)) && decided.iter().any(|e| !leaves(*e));
    let weight = instructions(walks.map, &walks.blocks, body.iter().map(|b| b.0));
    let latches = back_edges(walks.map).filter(|(_, to)| *to == head).map(|(from, _)| from).collect();
    (decides && weight as f64 >= options.least_loop * total as f64).then_some(LastIterations { head, latches })
}

/// The blocks between two branches, to be copied for executions through a deciding edge; `None` if they cannot be copied or are too many.
fn copy(walks: &Walks, found: &Correlated, given: &Given, options: &TransformationOptions) -> Option<PathCopy> {
    let behind: Vec<(&BlockWalk, usize, usize)> =
        walks.walks.iter().filter_map(|w| stretch(w, given.edge, found.later).map(|(a, b)| (w, a, b))).collect();
    let blocks: BTreeSet<Node> = behind.iter().flat_map(|(walk, from, to)| walk.blocks[*from..=*to].iter().copied()).collect();
    let copied: u64 = blocks.iter().map(|b| u64::from(walks.map.blocks[b.index()].instructions)).sum();
    if copied > options.most_copied || found.stretch.obstacle.is_some() || !walks.map.edges[given.edge.index()].cases.is_empty() {
        return None;
    }
    let mut through: BTreeMap<Edge, u64> = BTreeMap::new();
    for (walk, from, to) in &behind {
        for edge in walk.edges.get(*from..=*to).unwrap_or_default() {
            *through.entry(*edge).or_default() += walk.count;
        }
    }
    let last = |(number, edge): (usize, &trodden_unit::FlowEdge)| {
        let copied = through.get(&Edge(number as u32)).copied().unwrap_or(0);
        let kept = walks.edges[number].saturating_sub(copied);
        (blocks.contains(&edge.from) && edge.kind != EdgeKind::Reach).then_some(SplitWeights { edge: Edge(number as u32), copied, kept })
    };
    let weights = walks.map.edges.iter().enumerate().filter_map(last).collect();
    Some(PathCopy { entry: given.edge, blocks: in_order(walks.map, &blocks)?, weights })
}

/// The indices on a path of the block after an edge and of a later block.
fn stretch(walk: &BlockWalk, edge: Edge, later: Node) -> Option<(usize, usize)> {
    let from = walk.edges.iter().position(|e| *e == edge)? + 1;
    let to = walk.blocks.iter().position(|b| *b == later)?;
    (from <= to).then_some((from, to))
}

/// The innermost loop that two blocks are in, with its blocks.
fn innermost(walks: &Walks, one: Node, other: Node) -> Option<(Node, BTreeSet<Node>)> {
    let loops = crate::advise::loops_of(walks.map);
    let both = loops.into_iter().filter(|(_, body)| body.contains(&one) && body.contains(&other));
    both.min_by_key(|(_, body)| body.len())
}

/// The blocks in topological order; `None` if they have a cycle.
fn in_order(map: &FunctionMap, blocks: &BTreeSet<Node>) -> Option<Vec<Node>> {
    let cut: BTreeSet<Edge> = map.cuts.iter().map(|(edge, _)| *edge).collect();
    let inner = |(number, e): &(usize, &trodden_unit::FlowEdge)| {
        e.kind != EdgeKind::Reach && !cut.contains(&Edge(*number as u32)) && blocks.contains(&e.from) && blocks.contains(&e.to)
    };
    let edges: Vec<(Node, Node)> = map.edges.iter().enumerate().filter(inner).map(|(_, e)| (e.from, e.to)).collect();
    let (mut left, mut order) = (blocks.clone(), Vec::new());
    while !left.is_empty() {
        let next = *left.iter().find(|b| !edges.iter().any(|(from, to)| to == *b && left.contains(from)))?;
        left.remove(&next);
        order.push(next);
    }
    Some(order)
}

fn back_edges(map: &FunctionMap) -> impl Iterator<Item = (Node, Node)> {
    let back = map.cuts.iter().filter(|(_, reason)| *reason == CutReason::Back);
    back.map(|(edge, _)| (map.edges[edge.index()].from, map.edges[edge.index()].to))
}

/// Executed instructions of some blocks.
fn instructions(map: &FunctionMap, executions: &[u64], blocks: impl IntoIterator<Item = u32>) -> u64 {
    let of = |b: u32| executions.get(b as usize).copied().unwrap_or(0).saturating_mul(u64::from(map.blocks[b as usize].instructions));
    blocks.into_iter().fold(0, |sum, b| sum.saturating_add(of(b)))
}
