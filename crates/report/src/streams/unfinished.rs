//! The unfinished path of a thread's innermost frame: from its last event to the instruction at which a core file says that it was.
//!
//! Events say where the frame's path stands: at the function's entry, behind a back edge, or behind a call. From there paths lead to
//! blocks that have code of the instruction's line. Such a path takes no edge at which paths are cut, and passes no call that the stream
//! notes: both would be events. If there is one, it is the unfinished path; else what all have in common is certain. The path's
//! number itself was in a register of the program, and nothing says where that is.

use super::event_names::{EventNames, SourceLine};
use super::stopped::Stopped;
use crate::view::{chain, file_of};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use trodden_flow::{Edge, Node};
use trodden_profile::PathEnd;
use trodden_profile::stream::{Depth, FunctionPlace, LiveThread, Nesting, NestingStep, PathRole};
use trodden_unit::{EdgeKind, FunctionMap, Position, UnitMap};

/// Paths that are distinguished at most.
const MOST: usize = 256;

/// How a thread came from the last event to where it stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unfinished {
    /// The function.
    pub function: String,
    /// Lines of the path so far, if only one leads there; else of the blocks that all have in common.
    pub path: String,
    /// Number of paths that lead there.
    pub paths: usize,
}

/// The unfinished path of a thread that stopped there; none if it stopped in code of another function, or if the lines do not say.
pub fn unfinished(thread: &LiveThread, names: &EventNames, stopped: &Stopped) -> Option<Unfinished> {
    let (place, begun) = open_path(thread, names)?;
    let name = names.name(place);
    if stopped.function.as_ref() != Some(&name) {
        return None;
    }
    let (unit, function) = (names.places.unit(place), names.places.function(place));
    let ends: BTreeSet<Node> =
        (0..).map(Node).zip(&function.blocks).filter(|(_, block)| is_at(unit, block, &stopped.lines)).map(|(node, _)| node).collect();
    let paths = paths(function, &begun, &ends)?;
    let first = paths.first()?;
    let certain = first.iter().filter(|node| paths.iter().all(|path| path.contains(node)));
    let mut lines: Vec<u32> = certain.flat_map(|node| own_lines(unit, &function.blocks[node.index()])).collect();
    // A block may have code behind the instruction.
    if let Some(at) = stopped.lines.last().and_then(|own| lines.iter().rposition(|line| *line == own.line)) {
        lines.truncate(at + 1);
    }
    lines.dedup();
    let path = lines.iter().map(u32::to_string).collect::<Vec<_>>().join("-");
    Some(Unfinished { function: name, path, paths: paths.len() })
}

/// The function of the innermost frame, and the blocks of its path so far; none if its events are not known.
fn open_path(thread: &LiveThread, names: &EventNames) -> Option<(FunctionPlace, Vec<Node>)> {
    let mut depth = Depth { is_known: thread.earlier == 0, ..Depth::default() };
    let mut nesting = Nesting::new(&names.places);
    let mut begun: Vec<Vec<Node>> = Vec::new();
    for symbol in thread.events.iter().filter_map(|event| depth.symbol(*event)) {
        match nesting.feed(symbol) {
            NestingStep::Entered(_) => begun.push(vec![Node(0)]),
            NestingStep::Path { counter, role, depth } => {
                begun.resize(depth, Vec::new());
                let (place, walk) = names.places.walk(counter)?;
                match (role, walk.end) {
                    (PathRole::Goes, Some(PathEnd::Cut(edge))) => {
                        begun[depth - 1] = vec![names.places.function(place).edges[edge.index()].to]
                    }
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

/// Whether a block has code of the lines at which a thread stopped: that of the instruction, and those of calls inlined around it.
fn is_at(unit: &UnitMap, block: &trodden_unit::UnitBlock, stopped: &[SourceLine]) -> bool {
    let is = |position: Position, line: &SourceLine| {
        let name = |file: &str| Path::new(file).file_name().map(ToOwned::to_owned);
        position.line == line.line && file_of(unit, position).is_some_and(|file| name(file) == name(&line.file))
    };
    let mut positions = block.positions.iter().chain(&block.branch);
    !stopped.is_empty()
        && positions.any(|position| {
            let chain = chain(unit, *position);
            chain.len() == stopped.len() && chain.iter().rev().zip(stopped).all(|(at, line)| is(*at, line))
        })
}

/// All paths that begin so and lead to one of some blocks without an event; none if there are too many.
fn paths(function: &FunctionMap, begun: &[Node], ends: &BTreeSet<Node>) -> Option<Vec<Vec<Node>>> {
    let cuts: BTreeSet<Edge> = function.cuts.iter().map(|(edge, _)| *edge).collect();
    let is_event = |node: Node| function.edges.iter().any(|e| e.from == node && e.kind == EdgeKind::Reach);
    let mut found = Vec::new();
    let mut open = vec![begun.to_vec()];
    let mut tried = 0;
    while let Some(path) = open.pop() {
        tried += 1;
        if tried > MOST * function.blocks.len().max(1) || found.len() > MOST {
            return None;
        }
        let last = *path.last()?;
        if ends.contains(&last) {
            found.push(path.clone());
        }
        if path.len() > begun.len() && is_event(last) {
            continue;
        }
        let next = (0..).map(Edge).zip(&function.edges).filter(|(edge, e)| e.from == last && !cuts.contains(edge));
        for (_, edge) in next.filter(|(_, e)| e.kind != EdgeKind::Reach && e.to.index() < function.blocks.len()) {
            if !path.contains(&edge.to) {
                open.push(path.iter().copied().chain([edge.to]).collect());
            }
        }
    }
    Some(found)
}

/// Lines of a block in the function itself, in order.
fn own_lines(unit: &UnitMap, block: &trodden_unit::UnitBlock) -> Vec<u32> {
    let own = |position: &Position| chain(unit, *position).first().map_or(0, |own| own.line);
    let mut lines: Vec<u32> = block.positions.iter().chain(&block.branch).map(own).filter(|line| *line > 0).collect();
    lines.dedup();
    lines
}
