//! The difference between two profiles, as text and as JSON.

pub mod lines;

use self::lines::{FunctionLines, LineChange, LineDifference};
use crate::DemangledName;
use crate::select::limit;
use crate::view::file_of;
use crate::words::{base_name, plural};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use trodden_profile::{FunctionDifference, PathChange, PathDiff, ProfileDifference};

const SCHEMA_VERSION: u32 = 1;

fn path_change_name(change: PathChange) -> &'static str {
    match change {
        PathChange::Appeared => "appeared",
        PathChange::Vanished => "vanished",
        PathChange::Share => "share",
        PathChange::Count => "count",
    }
}

/// Returns the difference as JSON. `by_lines` contains the functions that were compared by source lines, because their paths cannot be
/// compared.
#[must_use]
pub fn json(found: &ProfileDifference, by_lines: &LineDifference) -> Value {
    let path = |p: &PathDiff| {
        json!({
            "id": p.id.to_string(), "change": path_change_name(p.change), "counts": [p.counts.0.to_string(), p.counts.1.to_string()],
            "function_share": [p.function_share.0, p.function_share.1], "program_share": [p.program_share.0, p.program_share.1],
            "blocks": p.blocks.iter().map(|b| b.0).collect::<Vec<_>>(),
        })
    };
    let function = |f: &FunctionDifference| {
        let name = DemangledName::from_linkage(f.map().plain_name());
        json!({
            "function": name.full, "linkage_name": name.linkage, "image": f.image, "source": f.unit.source, "file": declaring_file(f),
            "entries": [f.entries.0.to_string(), f.entries.1.to_string()], "executions": [f.executions.0.to_string(),
                f.executions.1.to_string()],
            "unfinished": [f.unfinished.0.to_string(), f.unfinished.1.to_string()], "paths": f.paths.iter().map(path).collect::<Vec<_>>(),
        })
    };
    json!({
        "schema_version": SCHEMA_VERSION, "compared": found.compared, "functions": found.functions.iter().map(function).collect::<Vec<_>>(),
        "only_before": found.only_before, "only_after": found.only_after,
        "overlap": { "executions": found.overlap.executions, "instructions": found.overlap.instructions },
        "by_lines": {
            "compared": by_lines.compared, "functions": by_lines.functions.iter().map(function_lines_json).collect::<Vec<_>>(),
        },
    })
}

fn function_lines_json(function: &FunctionLines) -> Value {
    let name = DemangledName::from_linkage(&function.name);
    let line = |line: &LineChange| {
        json!({
            "lines": [line.lines.0, line.lines.1], "change": path_change_name(line.change),
            "counts": [line.counts.0.to_string(), line.counts.1.to_string()], "per_call": [line.per_call.0, line.per_call.1],
        })
    };
    json!({
        "function": name.full, "linkage_name": name.linkage, "file": function.file, "compared": function.compared,
        "calls": [function.calls.0.to_string(), function.calls.1.to_string()], "lines": function.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

/// Renders the difference as text, with at most `top` paths or lines per function. `functions` is the number of instrumented functions,
/// each counted once even if several compilation units contain a copy.
#[must_use]
pub fn text(found: &ProfileDifference, by_lines: &LineDifference, functions: u64, top: usize) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string");
    let copies = match (found.compared as u64).checked_sub(functions).filter(|copies| *copies > 0) {
        Some(copies) => format!(", {} of them", plural(copies.into(), "more copy", "more copies")),
        None => String::new(),
    };
    let compared = plural(u128::from(functions.min(found.compared as u64)), "function", "functions");
    line(format!("{compared}{copies} compared, {} differ", found.functions.len()));
    let overlap = [found.overlap.executions, found.overlap.instructions].map(|o| 100.0 * o);
    line(format!("overlap of the paths' shares: {:.2} % of executions, {:.2} % of instructions", overlap[0], overlap[1]));
    let mut hidden_functions = 0;
    for function in &found.functions {
        let name = DemangledName::from_linkage(function.map().plain_name()).full;
        let (paths, hidden): (Vec<&PathDiff>, Vec<&PathDiff>) = function.paths.iter().partition(|path| !is_negligible(path));
        if paths.is_empty() && !hidden.is_empty() && function.unfinished.0 == function.unfinished.1 {
            hidden_functions += 1;
            continue;
        }
        line(format!("\n{name}  ({}; entered {} -> {})", display_file(function), function.entries.0, function.entries.1));
        for path in paths.iter().take(limit(top)) {
            let (was, is) = (format_percent(path.function_share.0), format_percent(path.function_share.1));
            line(format!(
                "  {:<9} path {:<6} {:>10} -> {:<10} {was:>7} -> {is:<7} {}",
                path_change_name(path.change),
                path.id,
                path.counts.0,
                path.counts.1,
                outline_path(function, path)
            ));
        }
        if paths.len() > limit(top) {
            line(format!("  ... and {} (--top)", plural((paths.len() - top) as u128, "more path", "more paths")));
        }
        if !hidden.is_empty() {
            let more = plural(hidden.len() as u128, "path", "paths");
            line(format!("  ... and {more} with 0.0 % of the executions both times (--json)"));
        }
    }
    if hidden_functions > 0 {
        let functions = plural(hidden_functions, "function differs", "functions differ");
        line(format!("\n{functions} only in paths with 0.0 % of the executions both times (--json)"));
    }
    if by_lines.compared > 0 {
        line(render_by_lines(by_lines, top));
    }
    list_functions_in_one_build(found).into_iter().for_each(line);
    out
}

/// Lists the functions that were executed in only one profile and have no counterpart in the other.
fn list_functions_in_one_build(found: &ProfileDifference) -> Vec<String> {
    let list = |names: &[String]| names.iter().map(|n| DemangledName::from_linkage(n).full).collect::<Vec<_>>().join(", ");
    let both = [("only in the first", &found.only_before), ("only in the second", &found.only_after)];
    let executed = both.into_iter().filter(|(_, names)| !names.is_empty());
    executed.map(|(title, names)| format!("\nexecuted {title}: {}", list(names))).collect()
}

fn render_by_lines(by_lines: &LineDifference, top: usize) -> String {
    let compared = plural(by_lines.compared as u128, "function with a different graph", "functions with different graphs");
    let mut out = format!("\n{compared} compared by source lines, {} differ", by_lines.functions.len());
    for function in &by_lines.functions {
        out.push('\n');
        out.push_str(&render_function_lines(function, top));
    }
    out
}

fn render_function_lines(function: &FunctionLines, top: usize) -> String {
    let (name, file) = (DemangledName::from_linkage(&function.name).full, base_name(&function.file));
    let mut out = format!("\n{name}  ({file}; called {} -> {})", function.calls.0, function.calls.1);
    for line in function.lines.iter().take(limit(top)) {
        let (number, counts) = (line.lines.1, line.counts);
        let per_call = format!("{:>7.2} -> {:<7.2} per call", line.per_call.0, line.per_call.1);
        write!(out, "\n  {:<9} line {number:<6} {:>10} -> {:<10} {per_call}", path_change_name(line.change), counts.0, counts.1)
            .expect("writing to a string");
    }
    if function.lines.len() > limit(top) {
        let more = plural((function.lines.len() - top) as u128, "more line", "more lines");
        write!(out, "\n  ... and {more} (--top)").expect("writing to a string");
    }
    out
}

fn format_percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns true if both shares of a path round to 0.0 %. Changed counts are never negligible, because they are listed only on request
/// (`--counts`).
fn is_negligible(path: &PathDiff) -> bool {
    let is_zero = |share: f64| format_percent(share) == format_percent(0.0);
    path.change != PathChange::Count && is_zero(path.function_share.0) && is_zero(path.function_share.1)
}

/// Returns the file in which a function is declared, which may be a header; `None` without debug information.
fn declaring_file(function: &FunctionDifference) -> Option<&str> {
    function.map().position.and_then(|position| file_of(&function.unit, position))
}

/// Returns the file name to show for a function: the compilation unit's source as the compiler was given it if that file declares the
/// function, and otherwise the base name of the declaring file.
fn display_file(function: &FunctionDifference) -> &str {
    let source = function.unit.source.as_str();
    declaring_file(function).filter(|file| !Path::new(file).ends_with(source)).map_or(source, base_name)
}

/// Lists the first line of each block on a path. The file is named whenever it changes.
fn outline_path(function: &FunctionDifference, path: &PathDiff) -> String {
    const MAX_LINES: usize = 12;
    let mut lines: Vec<(Option<&str>, u32)> = Vec::new();
    for block in path.blocks.iter().filter_map(|b| function.map().blocks.get(b.0 as usize)) {
        let position = block.positions.iter().find(|p| p.line > 0);
        let line = position.map(|p| (file_of(&function.unit, *p), p.line));
        lines.extend(line.filter(|l| lines.last() != Some(l)));
    }
    let mut file = declaring_file(function);
    let mut shown = Vec::new();
    for (of, line) in lines.iter().take(MAX_LINES) {
        let name = of.filter(|of| file.is_some_and(|file| file != *of)).map_or(String::new(), |of| format!("{}:", base_name(of)));
        shown.push(format!("{name}{line}"));
        file = of.or(file);
    }
    let more = if lines.len() > MAX_LINES { " ..." } else { "" };
    format!("lines {}{more}", shown.join(" "))
}
