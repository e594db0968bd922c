//! The unfinished path of a thread's innermost frame, from the frame's last event to the instruction at which the thread stopped.
//!
//! The last event shows how far the path had come: to the function's entry, past a back edge, or past a call. From there, a search follows
//! all paths to blocks with code from the instruction's line. It stops at cut edges and recorded calls, because passing them would have
//! been an event. If only one path is found, it is the unfinished path. Otherwise only the blocks common to all found paths are certain.
//! The path register cannot be read, because its location is unknown.

use super::event_names::{EventNames, SourceLine};
use super::stopped::StopPosition;
use crate::view::{file_of, inline_chain};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use trodden_flow::{Edge, Node};
use trodden_profile::PathEnd;
use trodden_profile::stream::{CallNesting, CallStackDepth, FunctionIndex, LiveThread, NestingStep, PathRole};
use trodden_unit::{EdgeKind, FunctionMap, SourcePosition, UnitMap};

/// Maximum number of paths to the stopped instruction. If there are more, none is reported.
const MAX_LISTED_UNFINISHED_PATHS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnfinishedPathReport {
    pub function: String,
    /// The lines of the path. If there are several paths, the lines of the blocks that all of them have in common.
    pub path: String,
    pub paths: usize,
}

/// Finds the unfinished path of a stopped thread. Returns `None` if the thread stopped in a different function, if no path or too many
/// paths lead to where it stopped, or if events or lines are unknown.
pub fn find_unfinished(thread: &LiveThread, names: &EventNames, stopped: &StopPosition) -> Option<UnfinishedPathReport> {
    let (place, begun) = find_open_path(thread, names)?;
    let name = names.function_name(place);
    if stopped.function.as_ref() != Some(&name) {
        return None;
    }
    let (unit, function) = (names.places.unit_map(place), names.places.function(place));
    let ends: BTreeSet<Node> = (0..)
        .map(Node)
        .zip(&function.blocks)
        .filter(|(_, block)| has_code_at_stop(unit, block, &stopped.lines))
        .map(|(node, _)| node)
        .collect();
    let paths = find_paths(function, &begun, &ends)?;
    let first = paths.first()?;
    let certain = first.iter().filter(|node| paths.iter().all(|path| path.contains(node)));
    let mut lines: Vec<u32> = certain.flat_map(|node| own_lines(unit, &function.blocks[node.index()])).collect();
    // Lines after the instruction's own line were not executed yet.
    if let Some(at) = stopped.lines.last().and_then(|own| lines.iter().rposition(|line| *line == own.line)) {
        lines.truncate(at + 1);
    }
    lines.dedup();
    let path = lines.iter().map(u32::to_string).collect::<Vec<_>>().join("-");
    Some(UnfinishedPathReport { function: name, path, paths: paths.len() })
}

/// Returns the innermost frame's function, and the blocks of the frame's path so far; `None` if the frame's events are not known.
fn find_open_path(thread: &LiveThread, names: &EventNames) -> Option<(FunctionIndex, Vec<Node>)> {
    let mut depth = CallStackDepth { is_known: thread.earlier == 0, ..CallStackDepth::default() };
    let mut nesting = CallNesting::new(&names.places);
    let mut begun: Vec<Vec<Node>> = Vec::new();
    for symbol in thread.events.iter().filter_map(|event| depth.next_symbol(*event)) {
        match nesting.feed_symbol(symbol) {
            NestingStep::Entered(_) => begun.push(vec![Node(0)]),
            NestingStep::Path { counter, role, depth } => {
                begun.resize(depth, Vec::new());
                let (place, walk) = names.places.decode(counter)?;
                match (role, walk.end) {
                    (PathRole::Continues, Some(PathEnd::Cut(edge))) => begun[depth - 1] = vec![names.places.function(place).graph.to(edge)],
                    (PathRole::Leaves, _) => drop(begun.pop()),
                    _ => begun[depth - 1] = walk.blocks,
                }
            }
            NestingStep::Unwound(_) => begun.truncate(nesting.frames().len()),
            NestingStep::Unknown => return None,
        }
    }
    let blocks = begun.pop().filter(|blocks| !blocks.is_empty())?;
    Some((nesting.frames().last()?.function, blocks))
}

/// Returns true if a block has code from the stopped instruction's line that was inlined through calls on the same lines. `stopped` lists
/// these lines.
fn has_code_at_stop(unit: &UnitMap, block: &trodden_unit::UnitBlock, stopped: &[SourceLine]) -> bool {
    let is = |position: SourcePosition, line: &SourceLine| {
        let name = |file: &str| Path::new(file).file_name().map(ToOwned::to_owned);
        position.line == line.line && file_of(unit, position).is_some_and(|file| name(file) == name(&line.file))
    };
    let mut positions = block.positions.iter().chain(&block.branch);
    !stopped.is_empty()
        && positions.any(|position| {
            let chain = inline_chain(unit, *position);
            chain.len() == stopped.len() && chain.iter().rev().zip(stopped).all(|(at, line)| is(*at, line))
        })
}

/// Returns all paths that start with the blocks `begun`, reach one of `ends`, and pass no cut edge or recorded call; `None` if there are
/// too many.
fn find_paths(function: &FunctionMap, begun: &[Node], ends: &BTreeSet<Node>) -> Option<Vec<Vec<Node>>> {
    let cuts: BTreeSet<Edge> = function.cuts.iter().map(|(edge, _)| *edge).collect();
    let is_event = |node: Node| function.graph.flow_edges().any(|e| e.from == node && e.kind == EdgeKind::Reach);
    let mut found = Vec::new();
    let mut open = vec![begun.to_vec()];
    let mut tried = 0;
    while let Some(path) = open.pop() {
        tried += 1;
        if tried > MAX_LISTED_UNFINISHED_PATHS * function.blocks.len().max(1) || found.len() > MAX_LISTED_UNFINISHED_PATHS {
            return None;
        }
        let last = *path.last()?;
        if ends.contains(&last) {
            found.push(path.clone());
        }
        if path.len() > begun.len() && is_event(last) {
            continue;
        }
        let graph = &function.graph;
        let next = graph.out(last).iter().filter(|edge| !cuts.contains(edge) && graph.kind(**edge) != EdgeKind::Reach);
        for to in next.map(|edge| graph.to(*edge)).filter(|to| *to != graph.exit() && !path.contains(to)) {
            open.push(path.iter().copied().chain([to]).collect());
        }
    }
    Some(found)
}

/// Returns a block's lines in the function's own source, in order.
fn own_lines(unit: &UnitMap, block: &trodden_unit::UnitBlock) -> Vec<u32> {
    let own = |position: &SourcePosition| inline_chain(unit, *position).first().map_or(0, |own| own.line);
    let mut lines: Vec<u32> = block.positions.iter().chain(&block.branch).map(own).filter(|line| *line > 0).collect();
    lines.dedup();
    lines
}
