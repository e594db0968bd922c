//! `trodden-lab graph extract`: control-flow graphs of a program's machine code.
//!
//! The research handbook (`docs/handbook/src/graphs.md`) documents the output. In JSON, addresses are numbers, and edges identify blocks
//! by their addresses.

use crate::cli::{ExtractArguments, GraphFormat};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use trodden_binary::graph::{CallKind, CallReturns, CallSite, CodeCallee, FunctionGraph, GraphSource, ProgramGraph};
use trodden_binary::{AddressMap, Binary, demangle, recover};

const SCHEMA_VERSION: u32 = 2;
const MAX_SIMILAR_NAMES: usize = 5;

pub fn extract(job: &ExtractArguments) -> Result<()> {
    let binary = Binary::read(&job.binary)?;
    let map = match &job.side_build {
        Some(side) => Some(AddressMap::from_side_build(&binary, &Binary::read(side)?)?),
        None => AddressMap::read(&binary)?,
    };
    let graph = recover(&binary, map.as_ref(), &[])?;
    let functions = select_functions(&graph, &binary, &job.function)?;
    let text = match job.format {
        GraphFormat::Json => serde_json::to_string(&program_json(&binary, &graph, &functions))? + "\n",
        GraphFormat::Dot => program_dot(&graph, &functions),
    };
    trodden_console::output::text_or_json_writer(job.format == GraphFormat::Json).write_all(text.as_bytes())?;
    Ok(())
}

/// Returns the functions with the given names or addresses, or all functions if none are given.
fn select_functions<'a>(graph: &'a ProgramGraph, binary: &Binary, names: &[String]) -> Result<Vec<&'a FunctionGraph>> {
    if names.is_empty() {
        return Ok(graph.functions.iter().collect());
    }
    let mut all: Vec<&FunctionGraph> = Vec::new();
    for name in names {
        let found: Vec<&FunctionGraph> = match name.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
            Some(Ok(address)) => graph.function_containing(address).map(|f| graph.function(f)).into_iter().collect(),
            _ => graph.functions.iter().filter(|f| has_name(f, name)).collect(),
        };
        if found.is_empty() {
            bail!("{} has no function `{name}`{}", binary.path().display(), suggest_names(graph, name));
        }
        all.extend(found);
    }
    all.sort_by_key(|f| f.entry);
    all.dedup_by_key(|f| f.entry);
    Ok(all)
}

fn has_name(function: &FunctionGraph, name: &str) -> bool {
    let readable = demangle(&function.name);
    function.name == name || readable == name || readable.split('(').next() == Some(name)
}

/// Returns the end of the error message: similar names, or a hint on how to list the functions.
fn suggest_names(graph: &ProgramGraph, name: &str) -> String {
    let names: Vec<String> = graph.functions.iter().filter(|f| !f.name.starts_with("sub_")).map(|f| demangle(&f.name)).collect();
    let lower = name.to_lowercase();
    let mut similar: Vec<(usize, &String)> = Vec::new();
    for other in &names {
        let short = other.split('(').next().unwrap_or(other).to_lowercase();
        let distance = if short.contains(&lower) { 0 } else { edit_distance(&lower, &short) };
        if distance <= lower.chars().count().div_ceil(3) {
            similar.push((distance, other));
        }
    }
    similar.sort();
    let list: Vec<&str> = similar.iter().take(MAX_SIMILAR_NAMES).map(|(_, name)| name.as_str()).collect();
    match (list.is_empty(), graph.functions.iter().any(|f| f.has_symbol)) {
        (false, _) => format!("; similar: {}", list.join(", ")),
        (true, false) => "; it is stripped, so name the function by an address in it, such as 0x1180 (`trodden-lab graph extract` without \
            --function lists them)"
            .into(),
        (true, true) => "; `trodden-lab graph extract` without --function lists them".into(),
    }
}

/// Returns the Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, char_a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, char_b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(char_a != *char_b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn program_json(binary: &Binary, graph: &ProgramGraph, functions: &[&FunctionGraph]) -> Value {
    let stubs: Vec<Value> = graph.stubs.iter().map(|s| json!({"address": s.address, "import": s.import, "resolver": s.resolver})).collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "binary": binary.path().display().to_string(),
        "build_id": binary.build_id(),
        "position_independent": binary.is_position_independent(),
        "entry": binary.entry(),
        "functions": functions.iter().map(|f| function_json(f)).collect::<Vec<_>>(),
        "stubs": stubs,
    })
}

fn function_json(function: &FunctionGraph) -> Value {
    let address_of = |block: trodden_binary::graph::BlockIndex| function.block(block).start;
    let frequencies = function.frequencies.as_ref();
    let blocks = function.blocks.iter().enumerate().map(|(place, b)| {
        let mut block = json!({"address": b.start, "size": b.size, "last": b.last, "end": b.end.name()});
        if let Some(frequency) = frequencies.and_then(|f| f.blocks.get(place)) {
            block["frequency"] = json!(frequency);
        }
        block
    });
    let edges = function.edges.iter().enumerate().map(|(place, e)| {
        let mut edge = json!({"from": address_of(e.from), "to": address_of(e.to), "kind": e.kind.name()});
        if let Some(probability) = frequencies.and_then(|f| f.edges.get(place)) {
            edge["probability"] = json!(probability);
        }
        edge
    });
    let source = match function.source {
        GraphSource::AddressMap { version } => json!({"kind": "address-map", "version": version}),
        GraphSource::Recovered => json!({"kind": "recovered"}),
    };
    let uncertain = function.uncertain.iter().map(|u| json!({"address": u.address, "kind": u.doubt.name(), "what": u.doubt.to_string()}));
    let mut object = json!({
        "name": function.name,
        "address": function.entry,
        "other_entries": function.other_entries,
        "ranges": function.ranges.iter().map(|r| json!([r.start, r.end])).collect::<Vec<_>>(),
        "blocks": blocks.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "calls": function.calls.iter().map(|c| call_json(c, address_of(c.block))).collect::<Vec<_>>(),
        "landing_pads": function.landing_pads,
        "source": source,
        "uncertain": uncertain.collect::<Vec<_>>(),
        "address_taken": function.is_address_taken,
        "returns": function.returns,
    });
    let readable = demangle(&function.name);
    if readable != function.name {
        object["demangled"] = json!(readable);
    }
    if let Some(count) = frequencies.and_then(|f| f.entry_count) {
        object["entry_count"] = json!(count);
    }
    object
}

fn call_json(call: &CallSite, block: u64) -> Value {
    let callee = match &call.callee {
        CodeCallee::Function(entry) => json!({"function": entry}),
        CodeCallee::Import(name) => json!({"import": name}),
        CodeCallee::Indirect => json!("indirect"),
        CodeCallee::OneOf(entries) => json!({"one_of": entries}),
    };
    let kind = match call.kind {
        CallKind::Call => "call",
        CallKind::TailCall => "tail-call",
        CallKind::ConditionalTailCall => "conditional-tail-call",
    };
    let returns = match call.returns {
        CallReturns::Maybe => "maybe",
        CallReturns::Never => "never",
        CallReturns::Twice => "twice",
    };
    json!({
        "block": block, "address": call.address, "return_address": call.return_address, "callee": callee, "kind": kind, "returns": returns,
        "landing_pad": call.landing_pad, "always_lands": call.always_lands,
    })
}

fn program_dot(graph: &ProgramGraph, functions: &[&FunctionGraph]) -> String {
    let mut text = String::from("digraph program {\n  node [shape=box, fontname=monospace];\n");
    for function in functions {
        append_dot_function(graph, function, &mut text);
    }
    text.push_str("}\n");
    text
}

/// Appends a function as a Graphviz cluster: blocks with their addresses and calls, and edges with their kinds.
fn append_dot_function(graph: &ProgramGraph, function: &FunctionGraph, text: &mut String) {
    let escaped = |name: &str| name.replace('\\', "\\\\").replace('"', "\\\"");
    let _ = writeln!(
        text,
        "  subgraph \"cluster_{:x}\" {{\n    label=\"{} ({})\";",
        function.entry,
        escaped(&demangle(&function.name)),
        function.source
    );
    for (place, block) in function.blocks.iter().enumerate() {
        let calls: Vec<String> = function
            .calls_in(trodden_binary::graph::BlockIndex(place as u32))
            .map(|c| format!("\\l{:#x} {}", c.address, escaped(&callee_name(graph, &c.callee))))
            .collect();
        let doubts: Vec<String> =
            function.uncertain.iter().filter(|u| block.contains(u.address)).map(|u| format!("\\l? {}", u.doubt)).collect();
        let style = if block.start == function.entry { ", penwidth=2" } else { "" };
        let _ = writeln!(
            text,
            "    \"{:#x}\" [label=\"{:#x} +{}{}{}\\l\"{style}];",
            block.start,
            block.start,
            block.size,
            calls.concat(),
            doubts.concat()
        );
    }
    for edge in &function.edges {
        let (from, to) = (function.block(edge.from).start, function.block(edge.to).start);
        let _ = writeln!(text, "    \"{from:#x}\" -> \"{to:#x}\" [label=\"{}\"];", edge.kind.name());
    }
    text.push_str("  }\n");
}

fn callee_name(graph: &ProgramGraph, callee: &CodeCallee) -> String {
    match callee {
        CodeCallee::Function(entry) => {
            graph.function_entered_at(*entry).map_or_else(|| format!("{entry:#x}"), |f| demangle(&graph.function(f).name))
        }
        CodeCallee::Import(name) => name.clone(),
        CodeCallee::Indirect => "(indirect)".into(),
        CodeCallee::OneOf(entries) => format!("(one of {})", entries.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::edit_distance;

    #[test]
    fn edit_distance_counts_changed_characters() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("main", "main"), 0);
    }
}
