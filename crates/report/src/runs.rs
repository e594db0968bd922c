//! The runs of a run store as JSON and as a table, for `trodden runs`.

use crate::json;
use serde_json::{Value, json};
use std::fmt::Write;
use trodden_profile::{ProcessEnding, RunEntry};
use trodden_text::words::format_utc_time;

/// Describes a run and its profile as JSON.
pub fn run_json(entry: &RunEntry) -> Value {
    let images = entry.images.iter().map(|i| json!({"path": i.path, "image": i.identity.to_string(), "build_id": i.build_id}));
    json!({
        "number": entry.number,
        "run": json::run_json(&entry.run),
        "profile": entry.profile,
        "bytes": entry.bytes,
        "images": images.collect::<Vec<_>>()
    })
}

/// Renders a table of runs for a terminal.
pub fn render_run_table(runs: &[RunEntry]) -> String {
    let mut out =
        format!("{:>5}  {:<12} {:<16}  {:>10}  {:<10}  {}\n", "run", "suite", "started (UTC)", "seconds", "ending", "test or command");
    for entry in runs {
        let ending = match entry.run.ending {
            Some(ProcessEnding::Exit(status)) => format!("exit {status}"),
            Some(ProcessEnding::Signal(signal)) => format!("signal {signal}"),
            None if entry.run.runs > 1 => "several".into(),
            None => "unknown".into(),
        };
        // Seconds are omitted.
        let started = format_utc_time(entry.run.started_ns).chars().take("2026-11-21 09:45".len()).collect::<String>();
        let suite = entry.run.suite.as_deref().unwrap_or("-");
        let seconds = entry.run.duration_ns as f64 / 1e9;
        let command = entry.run.test.clone().unwrap_or_else(|| entry.run.command.join(" ")).replace(char::is_control, " ");
        writeln!(out, "{:>5}  {suite:<12} {started}  {seconds:>10.3}  {ending:<10}  {command}", entry.number).expect("writing to a string");
    }
    out
}
