//! Whether code in a block that was not executed tells that its line was not executed.
//!
//! The optimiser moves code to where its result is used: into a branch that may never have been taken, while the line in front of the
//! branch was executed. Code that a branch controls in the source stands behind the branch there. So a line in front of every untaken
//! branch that leads to its code was moved. Code that `goto` reaches backwards is taken for moved, too: then nothing is said of a line
//! that was not executed.

use crate::view::{Function, chain};
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Node;
use trodden_unit::{EdgeKind, Position};

/// Whether it is not known of a function whether it was called: it does nothing, so that nothing is left of it where it was inlined.
pub fn is_silent(function: &Function) -> bool {
    function.paths.entries() == 0 && matches!(&function.map.blocks[..], [block] if block.instructions <= 1)
}

/// For each block whether it only cleans up for an exception that is passed on.
pub fn cleanups(function: &Function) -> Vec<bool> {
    let exit = function.map.blocks.len();
    let mut others = vec![false; exit + 1];
    let ends = |e: &&trodden_unit::FlowEdge| e.to.index() == exit && !matches!(e.kind, EdgeKind::Resume | EdgeKind::Reach);
    let mut left: Vec<Node> = function.map.edges.iter().filter(ends).map(|e| e.from).collect();
    while let Some(block) = left.pop() {
        if !std::mem::replace(&mut others[block.index()], true) {
            left.extend(function.into.get(block.index()).into_iter().flatten());
        }
    }
    let mut resumes = vec![false; exit + 1];
    let mut left: Vec<Node> = function.map.edges.iter().filter(|e| e.kind == EdgeKind::Resume).map(|e| e.from).collect();
    while let Some(block) = left.pop() {
        if !std::mem::replace(&mut resumes[block.index()], true) {
            left.extend(function.into.get(block.index()).into_iter().flatten());
        }
    }
    resumes.iter().zip(&others).map(|(resumes, others)| *resumes && !*others).collect()
}

/// Whether a position in a block that was not executed says nothing of its line; `untaken` are the blocks whose untaken branches lead
/// there.
pub fn is_moved(function: &Function, untaken: &BTreeSet<Node>, position: Position, entries: &BTreeMap<u32, u64>) -> bool {
    // Bodies that were never entered have not executed anything.
    if entries.get(&position.scope) == Some(&0) || function.paths.entries() == 0 {
        return false;
    }
    let lines: Vec<u32> = untaken.iter().filter_map(|from| decided(function, *from, position)).collect();
    !lines.is_empty() && lines.iter().all(|line| position.line < *line)
}

/// Executed blocks from which blocks that were not executed lead to this one.
pub fn untaken(function: &Function, block: Node) -> BTreeSet<Node> {
    let (mut found, mut left, mut seen) = (BTreeSet::new(), vec![block], vec![false; function.paths.blocks.len()]);
    while let Some(at) = left.pop() {
        for from in function.into.get(at.index()).into_iter().flatten() {
            match function.paths.blocks.get(from.index()) {
                Some(0) if !std::mem::replace(&mut seen[from.index()], true) => left.push(*from),
                Some(1..) => _ = found.insert(*from),
                _ => {}
            }
        }
    }
    found
}

/// The line of a position's scope and file in which a block's branch is decided.
fn decided(function: &Function, block: Node, position: Position) -> Option<u32> {
    let known = function.map.blocks.get(block.index())?;
    let map = function.units_map();
    let line = |p: Position| chain(map, p).into_iter().find(|p| (p.scope, p.file) == (position.scope, position.file)).map(|p| p.line);
    let branch = known.branch.filter(|b| b.line > 0).and_then(line);
    branch.or_else(|| known.positions.iter().copied().filter_map(line).max())
}
