//! A function's control-flow graph as DOT or JSON.
//!
//! `trodden graph number` reads the JSON. It uses `entry`, `exit` and `edges`, and ignores the descriptions of blocks and edges.

use crate::names::DemangledName;
use crate::words;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use trodden_flow::{CutReason, Node};
use trodden_unit::{FunctionMap, UnitBlock, UnitMap};

/// Execution counts shown on blocks and edges.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionCountLabels<'a> {
    /// Number of executions of each block.
    pub blocks: &'a [u64],
    /// Number of executions of each edge.
    pub edges: &'a [u64],
}

/// Writes the graph in Graphviz's DOT language. An edge at which paths are cut is dashed, and an edge that represents a call that may not
/// return is dotted.
pub fn write_dot(unit: &UnitMap, function: &FunctionMap, counts: Option<ExecutionCountLabels>) -> String {
    let cuts = find_cuts(function);
    let mut out = String::new();
    let mut write = || -> std::fmt::Result {
        writeln!(out, "digraph {} {{", quote_dot_text(&DemangledName::from_linkage(&function.name).full))?;
        writeln!(out, "  node [shape=box, fontname=\"monospace\"];\n  edge [fontname=\"monospace\"];")?;
        for (at, block) in function.blocks.iter().enumerate() {
            let mut label = format!("{at}: {}", words::plural(block.instructions.into(), "instruction", "instructions"));
            block_lines(unit, block).iter().for_each(|l| label.push_str(&format!("\n{l}")));
            if let Some(count) = counts.and_then(|c| c.blocks.get(at)) {
                label.push_str(&format!("\n{}x", words::count((*count).into())));
            }
            writeln!(out, "  b{at} [label={}];", quote_dot_text(&label))?;
        }
        writeln!(out, "  exit [shape=doublecircle, label=\"\", width=0.2];")?;
        for (at, edge) in function.graph.flow_edges().enumerate() {
            let mut label = words::edge_label(&edge);
            if let Some(count) = counts.and_then(|c| c.edges.get(at)) {
                label = format!("{label} {}x", words::count((*count).into())).trim_start().to_string();
            }
            let style = match (cuts.get(&(at as u32)), edge.kind) {
                (Some(_), _) => ", style=dashed",
                (None, trodden_unit::EdgeKind::Reach) => ", style=dotted",
                _ => "",
            };
            writeln!(
                out,
                "  {} -> {} [label={}{style}];",
                node_name(function, edge.from),
                node_name(function, edge.to),
                quote_dot_text(&label)
            )?;
        }
        writeln!(out, "}}")
    };
    write().expect("writing to a string cannot fail");
    out
}

/// Returns the graph as JSON.
pub fn graph_json(unit: &UnitMap, function: &FunctionMap, counts: Option<ExecutionCountLabels>) -> Value {
    let cuts = find_cuts(function);
    let name = DemangledName::from_linkage(&function.name);
    let edges: Vec<Value> = function.graph.flow_edges().map(|e| json!([node_name(function, e.from), node_name(function, e.to)])).collect();
    let describe = |(at, edge): (usize, trodden_unit::FlowEdge)| {
        let mut described = json!({ "edge": at, "kind": words::describe_edge_condition(&edge) });
        if let Some(reason) = cuts.get(&(at as u32)) {
            described["cut"] = json!(words::cut_reason(*reason));
        }
        if let Some(count) = counts.and_then(|c| c.edges.get(at)) {
            described["count"] = crate::json::number(*count);
        }
        described
    };
    let block = |(at, block): (usize, &UnitBlock)| {
        let mut described = json!({ "name": format!("b{at}"), "instructions": block.instructions, "lines": block_lines(unit, block) });
        if let Some(count) = counts.and_then(|c| c.blocks.get(at)) {
            described["count"] = crate::json::number(*count);
        }
        described
    };
    json!({
        "schema_version": crate::json::SCHEMA_VERSION,
        "function": name.full,
        "linkage_name": name.linkage,
        "entry": "b0",
        "exit": "exit",
        "edges": edges,
        "kinds": function.graph.flow_edges().enumerate().map(describe).collect::<Vec<_>>(),
        "blocks": function.blocks.iter().enumerate().map(block).collect::<Vec<_>>(),
        "paths": crate::json::number(function.counters),
    })
}

fn find_cuts(function: &FunctionMap) -> BTreeMap<u32, CutReason> {
    function.cuts.iter().map(|(edge, reason)| (edge.0, *reason)).collect()
}

fn node_name(function: &FunctionMap, node: Node) -> String {
    if node == function.exit() { "exit".into() } else { format!("b{}", node.0) }
}

/// Formats the source lines of a block, one string for each file: `foo.c:12-14`.
pub fn block_lines(unit: &UnitMap, block: &UnitBlock) -> Vec<String> {
    let mut files: Vec<(u32, u32, u32)> = Vec::new();
    for position in block.positions.iter().copied().chain(block.branch).filter(|p| p.line > 0) {
        match files.iter_mut().find(|(file, ..)| *file == position.file) {
            Some((_, first, last)) => (*first, *last) = ((*first).min(position.line), (*last).max(position.line)),
            None => files.push((position.file, position.line, position.line)),
        }
    }
    let range = |(file, first, last): (u32, u32, u32)| {
        let file = words::base_name(unit.files.get(file as usize).map_or("?", String::as_str));
        if first == last { format!("{file}:{first}") } else { format!("{file}:{first}-{last}") }
    };
    files.into_iter().map(range).collect()
}

fn quote_dot_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
