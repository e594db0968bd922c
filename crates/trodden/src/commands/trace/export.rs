//! `trodden trace export`: a trace in forms that other tools show. Time is the number of blocks executed, since a trace has no clock.
//!
//! Folded stacks are those of flame graph tools: a line for each context of calls, with the blocks that its innermost
//! function executed. Chrome's trace events (`B` and `E`) open in Perfetto and in the browser's own viewer.

use super::open;
use super::show::follow;
use crate::cli::{TraceExport, TraceFormat};
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use trodden_trace::{Frames, ThreadNumber, TraceEvent, TraceFile};

/// Writes a trace to standard output.
///
/// # Errors
/// It cannot be read.
pub fn run(job: &TraceExport) -> Result<ExitCode> {
    let trace = open(&job.trace)?;
    let mut out = BufWriter::new(crate::output::text_or_json(job.format == TraceFormat::Chrome));
    match job.format {
        TraceFormat::Folded => folded(&trace, &mut out)?,
        TraceFormat::Chrome => chrome(&trace, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn folded(trace: &TraceFile, out: &mut impl Write) -> Result<()> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for thread in (0..trace.threads()).map(ThreadNumber) {
        let mut frames = Frames::default();
        let mut since = 0u64;
        let mut stack = String::new();
        for event in trace.stream(thread) {
            let event = event?;
            let opens = follow(&mut frames, event, trace);
            if opens || !matches!(event, TraceEvent::Block(_)) {
                note(&mut counts, &stack, &mut since);
                // A semicolon separates frames, and C++ has none in names.
                let names: Vec<&str> = frames.open.iter().flatten().map(|f| trace.name(*f)).collect();
                stack = names.join(";");
            }
            since += u64::from(matches!(event, TraceEvent::Block(_)));
        }
        note(&mut counts, &stack, &mut since);
    }
    counts.iter().try_for_each(|(stack, blocks)| writeln!(out, "{stack} {blocks}"))?;
    Ok(())
}

fn note(counts: &mut BTreeMap<String, u64>, stack: &str, since: &mut u64) {
    let blocks = std::mem::take(since);
    if blocks > 0 {
        *counts.entry(stack.to_owned()).or_default() += blocks;
    }
}

fn chrome(trace: &TraceFile, out: &mut impl Write) -> Result<()> {
    let mut first = true;
    let mut event = |out: &mut dyn Write, phase: &str, name: &str, thread: u32, time: u64| -> Result<()> {
        let separator = if std::mem::take(&mut first) { "\n" } else { ",\n" };
        let name = serde_json::to_string(name)?;
        write!(out, r#"{separator}{{"ph":"{phase}","name":{name},"pid":1,"tid":{thread},"ts":{time}}}"#)?;
        Ok(())
    };
    write!(out, r#"{{"displayTimeUnit":"ms","otherData":{{"unit":"one microsecond is one block"}},"traceEvents":["#)?;
    for thread in 0..trace.threads() {
        let mut frames = Frames::default();
        let mut time = 0u64;
        for step in trace.stream(ThreadNumber(thread)) {
            let step = step?;
            let before = frames.open.len();
            let left = frames.open.last().copied().flatten();
            let opens = follow(&mut frames, step, trace);
            let ends = frames.open.len() < before || matches!(step, TraceEvent::Call { tail: true, .. });
            if let (true, Some(function)) = (ends, left) {
                event(out, "E", trace.name(function), thread, time)?;
            }
            if let TraceEvent::Block(block) = step {
                if opens {
                    event(out, "B", trace.name(trace.function_of(block)), thread, time)?;
                }
                time += 1;
            }
        }
        for function in frames.open.iter().rev().flatten() {
            event(out, "E", trace.name(*function), thread, time)?;
        }
    }
    writeln!(out, "\n]}}")?;
    Ok(())
}
