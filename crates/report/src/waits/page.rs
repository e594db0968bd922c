//! The waiting time report as a self-contained HTML page. It shows wait sites with the two paths of each class, source annotated with the
//! waiting time that each line causes, and a timeline.

use super::{json, text};
use crate::SourceProvider;
use crate::html::NUMBERS_SCRIPT;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use trodden_waits_file::summary::WaitSummary;
use trodden_waits_file::timeline::BarActivity;

const PAGE_TEMPLATE: &str = include_str!("page/page.html");
const STYLE_SHEET: &str = include_str!("page/page.css");
const PAGE_SCRIPT: &str = include_str!("page/page.js");
const CONTEXT_LINES: u32 = 8;
const MAX_SOURCE_LINES_ON_PAGE: usize = 4000;

/// Writes the page.
pub fn page(summary: &WaitSummary, title: &str, sources: &SourceProvider) -> String {
    let mut data = json::wait_report(summary);
    data["timeline"] = timeline_json(summary);
    data["source"] = source_json(summary, sources);
    data["title"] = title.into();
    data["calls"] = summary.replayed.calls.into();
    // The notes also mention threads that had to wait for a processor.
    data["notes"] = text::notes(summary).into();
    // Without these replacements, a string in the data could close the script element.
    let data = data.to_string().replace("</", "<\\/").replace("<!--", "<\\!--");
    let script = [PAGE_SCRIPT, NUMBERS_SCRIPT].join("\n");
    PAGE_TEMPLATE.replace("/*STYLE*/", STYLE_SHEET).replace("/*SCRIPT*/", &script).replace("/*DATA*/", &data)
}

fn timeline_json(summary: &WaitSummary) -> Value {
    let bars = summary.replayed.timeline.bars.iter().map(|bar| {
        let code = summary.code(bar.code);
        let (kind, name) = match bar.activity {
            BarActivity::Computing => (0, code.function()),
            BarActivity::Communicating => (1, code.call.unwrap_or("call")),
            BarActivity::Waiting(_) => (2, code.call.unwrap_or("call")),
        };
        let releaser = if let BarActivity::Waiting(releaser) = bar.activity { Some(releaser.0) } else { None };
        json!([bar.location.0, bar.from_ns, bar.ns, kind, name, code.function(), releaser])
    });
    json!({"bars": bars.collect::<Vec<_>>(), "min_bar_ns": summary.replayed.timeline.min_bar_ns})
}

/// Returns the source lines that cause waits, with a few lines of context, by file.
fn source_json(summary: &WaitSummary, sources: &SourceProvider) -> Value {
    let mut files: BTreeMap<&str, BTreeMap<u32, u64>> = BTreeMap::new();
    for (file, line, ns) in &summary.lines {
        *files.entry(file).or_default().entry(*line).or_default() += ns;
    }
    let mut remaining = MAX_SOURCE_LINES_ON_PAGE;
    let mut shown = Vec::new();
    for (file, lines) in files {
        let Some(text) = sources(file) else {
            shown.push(json!({"file": file, "missing": true, "lines": []}));
            continue;
        };
        let near: BTreeSet<u32> = lines.keys().flat_map(|line| line.saturating_sub(CONTEXT_LINES)..=line + CONTEXT_LINES).collect();
        let rows: Vec<Value> = (1..)
            .zip(text.lines())
            .filter(|(number, _)| near.contains(number))
            .take(remaining)
            .map(|(number, text)| json!([number, text, lines.get(&number).copied().unwrap_or(0)]))
            .collect();
        remaining -= rows.len();
        shown.push(json!({"file": file, "lines": rows}));
    }
    Value::Array(shown)
}
