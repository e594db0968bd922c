//! SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"). Code review tools and editors show SARIF results beside the source.
//! This file has the parts that all logs share, and the log of untested paths, in which each untested path is a result whose code flow has
//! the steps of the path.

use crate::path_listing::{ListingStep, PathListing};
use crate::residual::{ResidualReport, UntestedPath};
use crate::source::SourceCache;
use crate::view::{Function, file_of};
use crate::words;
use serde_json::{Value, json};
use trodden_unit::SourcePosition;

const SARIF_SCHEMA_URL: &str = "https://json.schemastore.org/sarif-2.1.0.json";
const RULE_ID: &str = "untested-path";

pub(crate) fn build_sarif_log(rules: Value, results: Vec<Value>) -> Value {
    json!({
        "$schema": SARIF_SCHEMA_URL,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "trodden", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "columnKind": "utf16CodeUnits",
            "results": results,
        }],
    })
}

/// Appends the rules and results of another log. A rule that both logs have is not duplicated.
pub fn append_sarif_log(log: &mut Value, more: Value) {
    let own = &mut log["runs"][0];
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let find_rule = |rules: &[Value], rule: &Value| rules.iter().position(|r| r["id"] == rule["id"]);
    let mut rules = list(&own["tool"]["driver"]["rules"]);
    let others = list(&more["runs"][0]["tool"]["driver"]["rules"]);
    let rule_indices: Vec<usize> = others
        .into_iter()
        .map(|rule| {
            find_rule(&rules, &rule).unwrap_or_else(|| {
                rules.push(rule);
                rules.len() - 1
            })
        })
        .collect();
    let mut results = list(&own["results"]);
    results.extend(list(&more["runs"][0]["results"]).into_iter().map(|mut result| {
        let rule = result["ruleIndex"].as_u64().and_then(|at| rule_indices.get(at as usize).copied());
        result["ruleIndex"] = json!(rule);
        result
    }));
    own["tool"]["driver"]["rules"] = Value::Array(rules);
    own["results"] = Value::Array(results);
}

/// Returns a source location with a message; `None` if the file is unknown.
pub(crate) fn sarif_location(function: &Function, position: SourcePosition, text: &str, sources: &SourceCache) -> Option<Value> {
    let file = file_of(function.unit_map(), position).filter(|f| !f.is_empty())?;
    let mut region = json!({ "startLine": position.line });
    // Compilers count columns in bytes, but SARIF counts them in UTF-16 code units. The conversion needs the source text.
    if let Some(column) = sources.file(file).and_then(|f| f.utf16_column(position.line, position.column)).filter(|_| position.column > 0) {
        region["startColumn"] = json!(column);
    }
    let mut location = json!({ "physicalLocation": { "artifactLocation": { "uri": path_to_uri(file) }, "region": region } });
    if !text.is_empty() {
        location["message"] = json!({ "text": text });
    }
    Some(location)
}

/// Builds the log of untested paths.
pub fn untested_paths_sarif(residual: &ResidualReport, sources: &SourceCache) -> Value {
    let rule = json!({
        "id": RULE_ID,
        "shortDescription": { "text": "A path that no test takes." },
        "fullDescription": { "text": "The program took this path through a function, and none of the recorded tests did." },
    });
    build_sarif_log(json!([rule]), residual.shown.iter().map(|p| build_path_result(residual, p, sources)).collect())
}

fn build_path_result(residual: &ResidualReport, path: &UntestedPath, sources: &SourceCache) -> Value {
    let edges = if path.new_edges.is_empty() { ", although each of its branches was" } else { "" };
    let taken = words::plural(path.count.into(), "time", "times");
    let text = format!("Path {} of {} was not tested{edges}. It was taken {taken}.", path.id, path.function.name.full);
    let mut out = json!({
        "ruleId": RULE_ID,
        "ruleIndex": 0,
        "level": "note",
        "message": { "text": text },
        "locations": declaration_location(path.function, sources).into_iter().collect::<Vec<_>>(),
        "partialFingerprints": { "trodden/v1": format!("{}/{:016x}/{}", path.function.name.linkage, path.function.map.shape, path.id) },
        "occurrenceCount": path.count.min(i64::MAX as u64),
        "properties": {
            "path": path.id,
            "complete": path.complete,
            "runs": path.seen.runs,
            "everyEdgeKnown": path.new_edges.is_empty(),
            "firstSeenNs": path.seen.first_ns,
            "firstRun": residual.first_run_of(path).map(|r| r.words.clone()),
        },
    });
    let steps: Vec<Value> = path.listing.steps.iter().filter_map(|s| path_step(path.function, &path.listing, s, sources)).collect();
    if !steps.is_empty() {
        out["codeFlows"] = json!([{ "threadFlows": [{ "locations": steps }] }]);
    }
    out
}

/// Returns the location of a function's declaration; `None` if it is unknown.
pub(crate) fn declaration_location(function: &Function, sources: &SourceCache) -> Option<Value> {
    let mut place = sarif_location(function, function.map.position.filter(|p| p.line > 0)?, "", sources)?;
    place["logicalLocations"] = json!([{ "name": function.name.short, "fullyQualifiedName": function.name.full, "kind": "function" }]);
    Some(place)
}

/// Returns a path's step as a location in a code flow. The code flow may enter callees, and `call_depth` is the number of calls around the
/// path's function.
pub(crate) fn call_step(
    function: &Function,
    listing: &PathListing,
    at: &ListingStep,
    sources: &SourceCache,
    call_depth: usize,
) -> Option<Value> {
    let mut location = path_step(function, listing, at, sources)?;
    location["nestingLevel"] = json!(at.chain.len().saturating_sub(1) + call_depth);
    Some(location)
}

fn path_step(function: &Function, listing: &PathListing, step: &ListingStep, sources: &SourceCache) -> Option<Value> {
    let at = step.chain.last().filter(|p| p.line > 0)?;
    let begins = if std::ptr::eq(step, &listing.steps[0]) { words::describe_begin(&listing.begins) } else { String::new() };
    let turns = words::format_taken_branches(&step.turns);
    let text = [begins, turns].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join("; ");
    // Each inlined call nests one level deeper.
    Some(json!({ "location": sarif_location(function, *at, &text, sources)?, "nestingLevel": step.chain.len() - 1 }))
}

/// Converts a file path to a URI reference (RFC 3986).
fn path_to_uri(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-~+,@".contains(&b);
    let escaped: String = path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect();
    if path.starts_with('/') { format!("file://{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_in_file_names_are_escaped() {
        assert_eq!(path_to_uri("/a b/c#d.c"), "file:///a%20b/c%23d.c");
        assert_eq!(path_to_uri("src/ä:x.c"), "src/%C3%A4%3Ax.c");
    }
}
