//! The waiting time report as JSON. All times are in nanoseconds.
//!
//! `causes` lists code that computes or sleeps while others wait, longest first, and `communication` lists calls that take long to
//! complete. The times in both lists add up to `wait_ns`. `waits` lists wait sites with their classes. A class has a `representative`,
//! which is its first wait (location, time, and the formula of its two paths), and the mean and maximum `distance` of its waits from it.

use super::expression;
use serde_json::{Value, json};
use trodden_waits::{CodeId, LocationId, Step};
use trodden_waits_file::causes::CodeCause;
use trodden_waits_file::summary::{ClassSummary, SiteSummary, WaitSummary};

const SCHEMA_VERSION: u32 = 1;

/// Returns the report as JSON.
pub fn wait_report(summary: &WaitSummary) -> Value {
    let replayed = &summary.replayed;
    let outcome = &replayed.outcome;
    json!({
        "schema_version": SCHEMA_VERSION,
        "run_ns": outcome.run_ns,
        "wait_ns": outcome.wait_ns,
        "wait_occurrences": outcome.waits,
        "unexplained_ns": outcome.unexplained_ns,
        "threshold": summary.threshold,
        "classes_at_other_thresholds": outcome.other_classes.iter().map(|(threshold, count)| json!({"threshold": threshold,
            "classes": count})).collect::<Vec<_>>(),
        "causes": causes_json(summary, &summary.causes),
        "communication": causes_json(summary, &summary.other_causes),
        "waits": summary.sites.iter().map(|site| wait_site_json(summary, site)).collect::<Vec<_>>(),
        "kinds": summary.kinds.iter().map(|(kind, family, occurrences, ns)| json!({
            "kind": kind, "family": family, "occurrences": occurrences, "wait_ns": ns,
        })).collect::<Vec<_>>(),
        "critical_path": summary.critical_path.iter().map(|(name, ns)| json!({"code": name, "ns": ns})).collect::<Vec<_>>(),
        "imbalance": summary.imbalance.iter().map(|i| add_location(summary, i.location, json!({
            "function": i.function, "most_ns": i.max_ns, "mean_ns": i.mean_ns,
        }))).collect::<Vec<_>>(),
        "what_if": replayed.predictions.iter().map(|(function, percent, ns)| json!({
            "function": function, "percent_less": percent, "run_ns": ns,
        })).collect::<Vec<_>>(),
        "locations": (0..replayed.locations.len() as u32).map(|index| location_json(summary, LocationId(index))).collect::<Vec<_>>(),
        "diagnostics": outcome.diagnostics.iter().map(|(diagnostic, found)| json!({
            "text": diagnostic.to_string(), "count": found.count, "first_ns": found.time_ns,
                "location": summary.location_name(found.location),
        })).collect::<Vec<_>>(),
        "uncovered": replayed.uncovered.iter().map(|(name, (calls, ns))| json!({"function": name, "calls": calls,
            "ns": ns})).collect::<Vec<_>>(),
        "notes": replayed.notes.iter().chain(&replayed.names.symbols.notes).collect::<Vec<_>>(),
    })
}

fn causes_json(summary: &WaitSummary, causes: &[CodeCause]) -> Vec<Value> {
    let value = |cause: &CodeCause| {
        let callers = cause.callers.iter().map(|(caller, ns)| json!({"function": caller, "ns": ns}));
        let value = json!({
            "function": cause.function, "caller": cause.callers.first().map(|(caller, _)| caller), "callers": callers.collect::<Vec<_>>(),
            "file": cause.file, "line": cause.line, "state": cause.state.name(), "ns": cause.ns,
        });
        add_location(summary, cause.location, value)
    };
    causes.iter().map(value).collect()
}

fn location_json(summary: &WaitSummary, id: LocationId) -> Value {
    let name = summary.location(id);
    add_location(summary, id, json!({"computing_ns": name.computing_ns, "processor_ns": name.processor_ns}))
}

fn add_location(summary: &WaitSummary, id: LocationId, mut value: Value) -> Value {
    let name = summary.location(id);
    value["process"] = name.process.into();
    value["thread"] = name.thread.into();
    value["location"] = summary.location_name(id).into();
    value["location_index"] = id.0.into();
    value
}

fn wait_site_json(summary: &WaitSummary, site: &SiteSummary) -> Value {
    json!({
        "site": code_json(summary, site.code),
        "kind": site.kind,
        "family": site.family,
        "occurrences": site.occurrences,
        "total_ns": site.total_ns,
        "classes": site.classes.iter().map(|class| wait_class_json(summary, class)).collect::<Vec<_>>(),
    })
}

fn wait_class_json(summary: &WaitSummary, class: &ClassSummary) -> Value {
    let (longest, first, distances) = (&class.waits.longest, &class.waits.representative, &class.waits.distances);
    json!({
        "occurrences": class.waits.occurrences,
        "wait_ns": class.waits.total_ns,
        "min_ns": class.waits.min_ns,
        "max_ns": class.waits.max_ns,
        "locations": class.waits.locations.iter().map(|l| summary.location_name(*l)).collect::<Vec<_>>(),
        "representative": {
            "location_index": first.location.0, "enter_ns": first.enter_ns, "wait_ns": first.wait_ns,
            "expression": expression::representative_formula(summary, first),
        },
        "distance": {"mean": distances.sum / class.waits.occurrences.max(1) as f64, "max": distances.max},
        "longest": {"location_index": longest.location.0, "enter_ns": longest.enter_ns, "minus_ns": longest.since_ns},
        "plus": path_json(summary, &class.plus),
        "minus": path_json(summary, &class.minus),
        "left_out_ns": {"plus": class.removed_ns.0, "minus": class.removed_ns.1},
    })
}

fn code_json(summary: &WaitSummary, id: CodeId) -> Value {
    let code = summary.code(id);
    let mut value =
        json!({"call": code.call, "function": code.function(), "file": code.file, "line": summary.line(id), "stack": code.path});
    if let Some(taken) = &code.taken_path {
        value["path"] = json!({"function": taken.function, "lines": &*taken.lines});
    }
    value
}

fn path_json(summary: &WaitSummary, steps: &[(Step, u64)]) -> Vec<Value> {
    let step = |(step, ns): &(Step, u64)| {
        let mut value = code_json(summary, step.code);
        value["state"] = step.state.name().into();
        value["ns"] = (*ns).into();
        add_location(summary, step.location, value)
    };
    steps.iter().map(step).collect()
}
