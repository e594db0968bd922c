//! Untested paths as targets for test generators, each with its source lines in order and the direction of each branch.
//!
//! Lines have the form `FILE:LINE`, which directed fuzzers accept: AFLGo and its descendants compare LINE and the last component of FILE
//! with debug information. For inlined code, a line is that of the code itself, not that of the call.

use crate::path_listing::{PathListing, edge_positions, find_taken_branch};
use crate::view::{Function, file_of};
use serde_json::{Map, Value, json};
use trodden_flow::Edge;
use trodden_unit::{EdgeKind, SourcePosition};

/// Returns the JSON fields of a path: its lines in order, and its branches.
pub(crate) fn target_json(function: &Function, listing: &PathListing) -> Map<String, Value> {
    let at = |step: &crate::path_listing::ListingStep| step.chain.last().and_then(|position| format_line(function, *position));
    let mut lines: Vec<String> = listing.steps.iter().filter_map(at).collect();
    lines.dedup();
    let edges = listing.steps.iter().flat_map(|step| &step.turns).map(|turn| turn.edge);
    let branches = edges.map(|edge| branch_json(function, edge)).collect::<Vec<_>>();
    Map::from_iter([("lines".to_owned(), json!(lines)), ("branches".to_owned(), Value::from(branches))])
}

/// Describes a branch and the direction to take. The direction is identified by lines, because the optimiser may have negated the condition
/// of an `if`. Only a `switch` has a condition.
fn branch_json(function: &Function, edge: Edge) -> Value {
    let flow = function.map.graph.edge(edge);
    let at = function.map.blocks.get(flow.from.index()).and_then(|block| block.branch).filter(|position| position.line > 0);
    let (to, not) = edge_positions(function, edge);
    let column = |position: SourcePosition| format_column(function, position);
    let is_condition = matches!(flow.kind, EdgeKind::True | EdgeKind::False);
    json!({
        "at": at.and_then(column),
        "to": to.and_then(column),
        "not": not.into_iter().map(|position| position.and_then(column)).collect::<Vec<_>>(),
        "condition": find_taken_branch(function, edge).filter(|_| !is_condition).map(|turn| turn.text),
    })
}

/// Formats a position as `FILE:LINE`; `None` if the file or line is unknown.
fn format_line(function: &Function, position: SourcePosition) -> Option<String> {
    let file = file_of(function.unit_map(), position).filter(|file| !file.is_empty() && position.line > 0)?;
    Some(format!("{file}:{}", position.line))
}

/// Formats a position as `FILE:LINE:COLUMN`, without the column if it is unknown.
fn format_column(function: &Function, position: SourcePosition) -> Option<String> {
    let line = format_line(function, position)?;
    Some(if position.column > 0 { format!("{line}:{}", position.column) } else { line })
}
