//! The timeline of a waiting time report as Chrome trace JSON (Trace Event Format), which Perfetto and chrome://tracing show. Each block,
//! call and wait is a slice. An arrow leads from the thread that ended a wait to the end of the wait. `trodden report` can read the trace.

use serde_json::{Value, json};
use trodden_waits_file::summary::WaitSummary;
use trodden_waits_file::timeline::{BarActivity, TimelineBar};

/// Converts a recording's timeline to a Chrome trace.
pub fn chrome_trace(summary: &WaitSummary) -> Value {
    let locations = (0..summary.replayed.locations.len() as u32).map(trodden_waits::LocationId);
    let mut events: Vec<Value> = Vec::new();
    for location in locations {
        let name = summary.location(location);
        let (pid, tid) = (name.process, name.thread);
        let process = format!("{} {}", if name.is_rank { "rank" } else { "process" }, name.process);
        events.push(json!({"ph": "M", "name": "process_name", "pid": pid, "tid": tid, "args": {"name": process}}));
        events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": summary.location_name(location)}}));
    }
    for (number, bar) in summary.replayed.timeline.bars.iter().enumerate() {
        events.extend(slice_json(summary, bar, number));
    }
    json!({"displayTimeUnit": "ns", "traceEvents": events, "otherData": {"shortest_slice_ns": summary.replayed.timeline.min_bar_ns}})
}

fn to_microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn slice_json(summary: &WaitSummary, bar: &TimelineBar, number: usize) -> Vec<Value> {
    let code = summary.code(bar.code);
    let name = summary.location(bar.location);
    let (title, category) = match bar.activity {
        BarActivity::Computing => (code.function().to_owned(), "computing"),
        BarActivity::Communicating => (code.call.unwrap_or("call").to_owned(), "communicating"),
        BarActivity::Waiting(_) => (format!("wait in {}", code.call.unwrap_or("call")), "waiting"),
    };
    let mut events = vec![json!({
        "ph": "X", "name": title, "cat": category, "pid": name.process, "tid": name.thread, "ts": to_microseconds(bar.from_ns),
            "dur": to_microseconds(bar.ns),
        "args": {"function": code.function(), "file": code.file, "line": summary.line(bar.code)},
    })];
    if let BarActivity::Waiting(releaser) = bar.activity {
        let from = summary.location(releaser);
        let end = to_microseconds(bar.from_ns + bar.ns);
        events.push(
            json!({"ph": "s", "id": number, "name": "release", "cat": "release", "pid": from.process, "tid": from.thread, "ts": end}),
        );
        events.push(json!({"ph": "f", "id": number, "name": "release", "cat": "release", "bp": "e", "pid": name.process,
            "tid": name.thread, "ts": end}));
    }
    events
}
