//! Reports as JSON. The user guide (`docs/guide/src/formats.md`) documents the schema.
//!
//! Numbers above 2^53 are strings, because many JSON parsers cannot represent them exactly. A change that could break a reader increments
//! [`SCHEMA_VERSION`].

use crate::annotate::AnnotateRequest;
use crate::error::ReportError;
use crate::events;
use crate::line_range::LineRange;
use crate::lines::LineCounts;
use crate::measure::PathMeasure;
use crate::path_listing::{ListingStep, PathListing, ShownPathEnd, ShownPathStart};
use crate::sampled;
pub use crate::schema::{SCHEMA_VERSION, number};
use crate::select::{self, PathSelection, RankedPath};
use crate::source::SourceCache;
use crate::text::scope_label;
use crate::view::{Function, ProfileView, file_of};
use crate::words;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use trodden_profile::{PathCount, ProcessEnding, Run, UnfinishedPath};
use trodden_unit::experiment::Spelling;

/// Returns the output of `trodden report --json`. Fails if no function matches the selection.
pub fn report(view: &ProfileView, selection: &PathSelection, sources: &SourceCache) -> Result<Value, ReportError> {
    let ranking = selection.rank(view)?;
    let place: HashMap<*const Function, usize> = ranking.functions.iter().enumerate().map(|(i, f)| (std::ptr::from_ref(*f), i)).collect();
    let paths = ranking.paths.iter().enumerate().map(|(at, ranked)| {
        let mut path = path_json(ranked, sources);
        sampled::add_estimate_to_json(&mut path, sampled::estimate_executions(view, ranked));
        events::add_to_json(&mut path, view, ranked);
        path.insert("rank".into(), json!(at + 1));
        path.insert("function".into(), json!(place[&std::ptr::from_ref(ranked.function)]));
        Value::Object(path)
    });
    Ok(json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "report",
        "run": run_json(&view.profile.run),
        "sampling": sampled::sampling_json(view.profile.sampling.as_ref()),
        "measure": selection.measure.name(),
        "totals": totals_json(view),
        "paths": paths.collect::<Vec<_>>(),
        "functions": ranking.functions.iter().map(|f| function_json(view, f, selection.measure)).collect::<Vec<_>>(),
        "images": view.profile.images.iter().map(image_json).collect::<Vec<_>>(),
        "damaged": view.corrupt,
    }))
}

/// Returns the output of `trodden annotate --json`: a function's source lines with counts, and one of its paths. Fails if no function
/// matches, or if the function has no path with the requested number.
pub fn annotate(view: &ProfileView, request: &AnnotateRequest, sources: &SourceCache) -> Result<Value, ReportError> {
    let functions = select::find_functions(view, &request.function)?;
    let shown = functions[0];
    let listing = match shown.paths.unfinished.iter().find(|u| Some(u.id) == request.path) {
        Some(path) => Some(Value::Object(unfinished_path_json(shown, path, sources))),
        None => select::find_path(shown, request.path, request.measure)?.map(|path| {
            let weight = shown.weight(&path, request.measure);
            let ranked = RankedPath { function: shown, path: &path, weight, share: select::share(weight, view.total(request.measure)) };
            Value::Object(path_json(&ranked, sources))
        }),
    };
    Ok(json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "annotation",
        "function": function_json(view, shown, request.measure),
        "path": listing,
        "source": source_json(view, shown, sources),
        "also_matching": functions[1..].iter().map(|f| f.name.full.as_str()).collect::<Vec<_>>(),
    }))
}

fn source_json(view: &ProfileView, function: &Function, sources: &SourceCache) -> Value {
    let Some(range) = LineRange::from_function(function, sources) else { return Value::Null };
    let counts = LineCounts::from_functions([function]);
    let line = |number| {
        let count = view.line(&counts, &range.file, number).map(self::number);
        json!({ "line": number, "text": sources.line(&range.file, number), "count": count })
    };
    json!({ "file": range.file, "lines": (range.first..=range.last).map(line).collect::<Vec<_>>() })
}

/// Returns the description of a run that every report contains.
#[must_use]
pub fn run_json(run: &Run) -> Value {
    let ending = run.ending.map(|e| match e {
        ProcessEnding::Exit(status) => json!({ "exit": status }),
        ProcessEnding::Signal(signal) => json!({ "signal": signal }),
    });
    json!({
        "command": run.command,
        "directory": run.directory,
        "host": run.host,
        "suite": run.suite,
        "started_ns": number(run.started_ns),
        "duration_ns": number(run.duration_ns),
        "ending": ending,
        "runs": number(run.runs),
        "recorder": run.recorder,
        "test": run.test,
        "diverged": number(run.diverged),
        "lost": number(run.lost),
        "interrupted": number(run.interrupted),
    })
}

fn totals_json(view: &ProfileView) -> Value {
    let totals = &view.totals;
    json!({
        "executions": number(totals.executions),
        "not_exact": view.profile.inexactness_reasons().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "paths": number(totals.paths),
        "instructions": number(totals.instructions),
        "blocks": number(totals.blocks),
        "events": events::totals_json(view),
        "functions_executed": totals.executed,
        "functions_instrumented": totals.instrumented,
        "functions_not_instrumented": totals.skipped,
        "functions_cut": totals.cut,
        "unfinished": number(totals.unfinished),
        "functions_with_unfinished_paths": totals.unfinished_functions,
    })
}

fn image_json(image: &trodden_profile::ImageProfile) -> Value {
    let skipped = |u: &trodden_profile::UnitProfile| -> Vec<Value> {
        u.map.skipped.iter().map(|s| json!({ "function": s.name, "reason": s.reason })).collect()
    };
    let unit = |u: &trodden_profile::UnitProfile| {
        json!({ "identity": u.unit.to_string(), "source": u.map.source, "experiment": u.map.experiment.to_string(),
        "not_instrumented": skipped(u) })
    };
    json!({
        "path": image.path,
        "identity": image.identity.to_string(),
        "build_id": image.build_id,
        "units": image.units.iter().map(unit).collect::<Vec<_>>(),
    })
}

fn function_json(view: &ProfileView, function: &Function, measure: PathMeasure) -> Value {
    let none = SourceCache::new(&|_: &str| None);
    let lost = |l: &trodden_profile::LostPathFragment| {
        let line = crate::path_listing::first_line(function, l.head);
        json!({ "block": l.head.0, "count": l.count, "line": line })
    };
    json!({
        "name": function.name.full,
        "short_name": function.name.short,
        "linkage_name": function.name.linkage,
        "image": function.image.path,
        "unit": function.unit.unit.to_string(),
        "file": function.file(),
        "line": function.line(),
        "calls": number(function.paths.call_count()),
        "executions": number(function.paths.total()),
        "instructions": number(function.instructions),
        "blocks": number(function.blocks),
        "share": select::share(function.total(measure), view.total(measure)),
        "possible_paths": number(function.map.counters),
        "executed_paths": function.paths.complete.len(),
        "cut": function.is_cut(),
        "block_counts": function.paths.blocks.iter().map(|c| number(*c)).collect::<Vec<_>>(),
        "edge_counts": function.paths.edges.iter().map(|c| number(*c)).collect::<Vec<_>>(),
        "edges": function.map.graph.flow_edges().map(|e| json!([e.from.0, e.to.0, words::describe_edge_condition(&e)])).collect::<Vec<_>>(),
        "unfinished": function.paths.unfinished.iter().map(|u| unfinished_path_json(function, u, &none)).collect::<Vec<_>>(),
        "lost": function.paths.lost.iter().map(lost).collect::<Vec<_>>(),
    })
}

fn path_json(ranked: &RankedPath, sources: &SourceCache) -> Map<String, Value> {
    let PathCount { id, count, blocks, .. } = ranked.path;
    let mut out = listing_json(ranked.function, &PathListing::from_path(ranked.function, ranked.path), sources);
    out.insert("id".into(), number(*id));
    out.insert("count".into(), number(*count));
    out.insert("share".into(), json!(ranked.share));
    out.insert("weight".into(), number(ranked.weight));
    out.insert("instructions".into(), number(ranked.function.length(blocks)));
    out.insert("blocks".into(), json!(blocks.iter().map(|b| b.0).collect::<Vec<_>>()));
    out
}

fn unfinished_path_json(function: &Function, path: &UnfinishedPath, sources: &SourceCache) -> Map<String, Value> {
    let mut out = listing_json(function, &PathListing::from_path(function, path), sources);
    out.insert("id".into(), number(path.id));
    out.insert("count".into(), json!(path.count));
    out.insert("blocks".into(), json!(path.blocks.iter().map(|b| b.0).collect::<Vec<_>>()));
    out
}

pub(crate) fn listing_json(function: &Function, listing: &PathListing, sources: &SourceCache) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("begins".into(), path_begin_json(&listing.begins));
    out.insert("steps".into(), listing.steps.iter().map(|s| step_json(function, s, sources)).collect());
    out.insert("ends".into(), path_end_json(function, &listing.ends));
    out
}

fn path_begin_json(begins: &ShownPathStart) -> Value {
    let text = words::describe_begin(begins);
    match begins {
        ShownPathStart::Entry => json!({ "at": "entry", "text": text }),
        ShownPathStart::AfterCut { reason, at, line } => {
            json!({ "at": words::cut_reason(*reason), "block": at.0, "line": line, "text": text })
        }
    }
}

fn path_end_json(function: &Function, ends: &ShownPathEnd) -> Value {
    let text = words::describe_end(ends);
    match ends {
        ShownPathEnd::Exit { edge, line, .. } => {
            json!({ "by": words::describe_edge_condition(&function.map.graph.edge(*edge)), "line": line, "text": text })
        }
        ShownPathEnd::Cut { reason, to, line } => json!({ "by": words::cut_reason(*reason), "to_block": to.0, "line": line, "text": text }),
        ShownPathEnd::Stop { line } => json!({ "by": "stop", "line": line, "text": text }),
        ShownPathEnd::Call { at, lines } => {
            json!({ "by": "call", "block": at.0, "line": lines.map(|l| l.0), "last_line": lines.map(|l| l.1), "text": text })
        }
    }
}

fn step_json(function: &Function, step: &ListingStep, sources: &SourceCache) -> Value {
    let map = function.unit_map();
    let turns: Vec<Value> = step
        .turns
        .iter()
        .map(|t| json!({ "edge": t.edge.0, "condition": words::describe_edge_condition(&function.map.graph.edge(t.edge)), "text": t.text }))
        .collect();
    let mut out = json!({ "blocks": step.blocks.iter().map(|b| b.0).collect::<Vec<_>>(), "turns": turns });
    let Some((at, calls)) = step.chain.split_last() else { return out };
    out["file"] = json!(file_of(map, *at));
    out["line"] = json!(at.line);
    out["column"] = json!(at.column);
    out["source"] = json!(file_of(map, *at).and_then(|f| sources.line(f, at.line)));
    if !calls.is_empty() {
        out["inlined_function"] = json!(scope_label(map, *at));
        let call = |p: &trodden_unit::SourcePosition| {
            json!({ "function": scope_label(map, *p), "file": file_of(map, *p), "line": p.line,
            "column": p.column })
        };
        out["called_from"] = calls.iter().map(call).collect();
    }
    out
}
