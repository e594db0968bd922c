//! Fragments without a block, put behind the blocks that come before them.
//!
//! A backward branch that is not taken ends a path of the detector. What follows may be no more than the jump behind it,
//! or the rest of a block that ends in an indirect jump: code in which no block begins. Such a fragment belongs to the block
//! before it, so it becomes one fragment for each block from which control came, with shares of its count.

use super::apportion::apportion;
use super::fragment::{Exit, First, Fragment, FragmentFunction, FragmentStart, Graphs, actions_of, leaving};
use crate::branch_import::ImportError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_binary::{Connection, ProbedImage};

/// Fragments without blocks that follow each other, at most. They are parts of one block.
const LONGEST: usize = 16;

/// How often control came to an address from a block.
type Coming = HashMap<(FragmentFunction, u64), BTreeMap<u32, u64>>;

/// Gives a block to all fragments that have none; those that no block comes before are left out.
///
/// # Errors
/// A map is damaged.
pub fn place_rests(images: &[ProbedImage], graphs: &mut Graphs, found: Vec<Fragment>) -> Result<Vec<Fragment>, ImportError> {
    let (rests, mut fragments): (Vec<Fragment>, Vec<Fragment>) = found.into_iter().partition(|f| f.last.is_none());
    let mut placed: Vec<Fragment> = Vec::new();
    // The shares of those behind others are known when these are.
    for _ in 0..LONGEST {
        let mut coming = coming(&fragments, &placed);
        add_indirect(images, graphs, &fragments, &rests, &mut coming)?;
        let mut next = Vec::new();
        for rest in rests.iter().filter(|rest| goes_on(rest)) {
            let FragmentStart::At(address) = rest.start else { continue };
            let Some(blocks) = coming.get(&(rest.function, address)) else { continue };
            let weights: Vec<f64> = blocks.values().map(|count| *count as f64).collect();
            for (block, count) in blocks.keys().zip(apportion(rest.count, &weights)).filter(|(_, count)| *count > 0) {
                next.push(behind(images, graphs, rest, *block, count)?);
            }
        }
        let is_done = next == placed;
        placed = next;
        if is_done {
            break;
        }
    }
    fragments.append(&mut placed);
    Ok(fragments)
}

/// Whether anything follows from it: not of a loop of instructions within a block, which what comes in leaves again.
fn goes_on(rest: &Fragment) -> bool {
    match (rest.start, rest.exit) {
        (FragmentStart::At(from), Exit::At(to)) => from != to,
        (_, Exit::Over) => false,
        _ => true,
    }
}

/// How often control comes from each block to each address.
fn coming(fragments: &[Fragment], placed: &[Fragment]) -> Coming {
    let mut coming = Coming::new();
    for fragment in fragments.iter().chain(placed) {
        if let (Some(block), Exit::At(address)) = (fragment.last, fragment.exit) {
            *coming.entry((fragment.function, address)).or_default().entry(block).or_default() += fragment.count;
        }
    }
    coming
}

/// Adds what indirect jumps come to: where more begins than direct jumps lead to, the rest came from those blocks that end
/// in an indirect jump and have a successor that follows there.
fn add_indirect(
    images: &[ProbedImage],
    graphs: &mut Graphs,
    fragments: &[Fragment],
    rests: &[Fragment],
    coming: &mut Coming,
) -> Result<(), ImportError> {
    let mut indirect: BTreeMap<FragmentFunction, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut begin: HashMap<(FragmentFunction, u64), (u64, BTreeSet<u32>)> = HashMap::new();
    for fragment in fragments.iter().chain(rests) {
        if let (Some(block), Exit::Indirect) = (fragment.last, fragment.exit) {
            *indirect.entry(fragment.function).or_default().entry(block).or_default() += fragment.count;
        }
        if let FragmentStart::At(address) = fragment.start {
            let (count, blocks) = begin.entry((fragment.function, address)).or_default();
            *count += fragment.count;
            blocks.extend(if let First::Begin(block) = fragment.first { Some(block) } else { None });
        }
    }
    for rest in rests {
        let (FragmentStart::At(address), Exit::At(to)) = (rest.start, rest.exit) else { continue };
        let (Some(from), Some((_, blocks))) = (indirect.get(&rest.function), begin.get(&(rest.function, to))) else { continue };
        let key = (rest.function, address);
        let direct: u64 = coming.get(&key).map_or(0, |blocks| blocks.values().sum());
        let left = begin[&key].0.saturating_sub(direct);
        let graph = graphs.of(images, rest.function)?;
        let mut fits = |block: u32| blocks.iter().any(|to| matches!(graph.connect(block, Some(*to)), Connection::Unique(_)));
        let (from, weights): (Vec<u32>, Vec<f64>) = from.iter().filter(|(b, _)| fits(**b)).map(|(b, count)| (*b, *count as f64)).unzip();
        for (block, count) in from.into_iter().zip(apportion(left, &weights)) {
            *coming.entry(key).or_default().entry(block).or_default() += count;
        }
    }
    Ok(())
}

/// A fragment without blocks behind a block.
fn behind(images: &[ProbedImage], graphs: &mut Graphs, rest: &Fragment, block: u32, count: u64) -> Result<Fragment, ImportError> {
    let mut placed = Fragment { first: First::Within(block), last: Some(block), count, ..rest.clone() };
    if let Exit::Leaves(address) = rest.exit {
        let connection = leaving(images, graphs, rest.function, block, address)?;
        placed.actions = actions_of(graphs.of(images, rest.function)?, &connection);
        placed.exit = Exit::Over;
    }
    Ok(placed)
}
