//! Advice as SARIF 2.1.0 (OASIS standard). Code review tools and editors show SARIF results beside the source. A finding's locations form a
//! code flow.

use super::{RankedAdvice, ShownAdvice, words as say};
use crate::sarif::{self, sarif_location};
use crate::source::SourceCache;
use crate::view::{Function, ProfileView};
use serde_json::{Value, json};
use trodden_analysis::advise::{Advice, AdviceKind};
use trodden_flow::Node;
use trodden_unit::SourcePosition;
use trodden_unit::experiment::Spelling;

const SARIF_RULES: [(AdviceKind, &str); 4] = [
    (AdviceKind::Correlated, "A branch is decided by an earlier branch on the same path"),
    (AdviceKind::Loop, "The iterations of a loop fall into few patterns"),
    (AdviceKind::Redundant, "A result is computed again though nearly all executions already had it"),
    (AdviceKind::Never, "Two edges are taken often, but never on the same path"),
];

/// A loop whose iterations repeat a fixed sequence of different paths, as found in a recorded stream.
pub struct AlternatingIterations<'a> {
    /// Name of the function that contains the loop, as in the stream.
    pub function: &'a str,
    /// A sentence that states the finding and suggests a change.
    pub text: String,
    /// The property bag of the SARIF result.
    pub properties: Value,
}

/// Writes alternating loops as a SARIF log. A function whose source position is unknown is located by its name only.
pub fn write_alternating_iterations(view: &ProfileView, found: &[AlternatingIterations], sources: &SourceCache) -> Value {
    const RULE_ID: &str = "iterations";
    let rules = json!([{ "id": RULE_ID, "shortDescription": { "text": "A loop repeats a fixed sequence of different iterations" } }]);
    let result = |turns: &AlternatingIterations| {
        let function = view.functions.iter().find(|f| [&f.name.short, &f.name.full, &f.name.linkage].iter().any(|n| *n == turns.function));
        let unknown = || json!({ "logicalLocations": [{ "fullyQualifiedName": turns.function, "kind": "function" }] });
        let place = function.and_then(|function| sarif::declaration_location(function, sources)).unwrap_or_else(unknown);
        json!({
            "ruleId": RULE_ID,
            "ruleIndex": 0,
            "level": "note",
            "message": { "text": turns.text },
            "locations": [place],
            "properties": turns.properties,
        })
    };
    sarif::build_sarif_log(rules, found.iter().map(result).collect())
}

/// Writes findings as a SARIF log. A finding whose source position is unknown is located by its function's name only.
pub fn write_advice(advice: &ShownAdvice, sources: &SourceCache) -> Value {
    let rules = SARIF_RULES.map(|(kind, text)| json!({ "id": kind.name(), "shortDescription": { "text": text } }));
    let results = advice.savings.iter().chain(&advice.others).map(|r| result_json(r, sources));
    sarif::build_sarif_log(json!(rules), results.collect())
}

fn result_json(ranked: &RankedAdvice, sources: &SourceCache) -> Value {
    let function = ranked.function;
    let positions = label_evidence_positions(function, &ranked.finding.advice);
    let locations: Vec<Value> = positions.iter().filter_map(|(p, text)| sarif_location(function, (*p)?, text, sources)).collect();
    let logical = json!({ "fullyQualifiedName": function.name.full, "kind": "function" });
    let mut main = locations.last().cloned().unwrap_or_else(|| json!({}));
    main["logicalLocations"] = json!([logical]);
    let text = format!("{}. Try: {}.", say::describe_finding(function, &ranked.finding), say::suggest_change(function, &ranked.finding));
    let mut result = json!({
        "ruleId": ranked.finding.kind().name(),
        "level": "note",
        "message": { "text": text },
        "locations": [main],
        "properties": { "savesInstructions": ranked.finding.saves.to_string(), "savesShare": ranked.share },
    });
    if locations.len() > 1 {
        let flow: Vec<Value> = locations.into_iter().map(|l| json!({ "location": l })).collect();
        result["codeFlows"] = json!([{ "threadFlows": [{ "locations": flow }] }]);
    }
    result
}

/// Returns the source positions that explain a finding, each with a label, in execution order. The last one is the position at which the
/// finding is reported.
fn label_evidence_positions(function: &Function, advice: &Advice) -> Vec<(Option<SourcePosition>, String)> {
    let branch = |block: Node, text: String| (say::branch_position(function, block), text);
    let from = |edge: trodden_flow::Edge| function.map.graph.from(edge);
    match advice {
        Advice::Correlated(c) => vec![branch(c.earlier, "decides".into()), branch(c.later, "is decided".into())],
        Advice::Loop(l) => vec![(say::first_position(function, l.head), "the loop".into())],
        Advice::Redundant(r) => {
            let first = r.repeated.first();
            let made = first.and_then(|x| x.from.first()).and_then(|(site, _)| site.position);
            vec![(made, "computed".into()), (first.and_then(|x| x.at.position), "computed again".into())]
        }
        Advice::Never(n) => {
            vec![
                branch(from(n.first), say::format_taken_edge(function, n.first)),
                branch(from(n.second), format!("never after it: {}", say::format_taken_edge(function, n.second))),
            ]
        }
    }
}
