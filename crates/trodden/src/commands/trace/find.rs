//! `trodden trace find`: where in a trace a function is called or a line executed.

use super::open;
use super::show::follow;
use crate::cli::TraceFind;
use crate::output;
use anyhow::Result;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use trodden_distributed::place::{TraceLocation, described};
use trodden_report::escape;
use trodden_trace::{ThreadNumber, TraceEvent, TraceFile, TraceFrames};

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Found {
    thread: u32,
    /// How many blocks of the thread come before.
    block: u64,
    nth: u64,
    place: String,
    /// Functions that are open there, outermost first.
    calls: Vec<String>,
}

/// Finds a place: exit status 1 if it does not occur.
///
/// # Errors
/// The trace cannot be read, or has no such function or line.
pub fn run(job: &TraceFind) -> Result<ExitCode> {
    let trace = open(&job.trace)?;
    let place = TraceLocation::parse(&job.place, &trace)?;
    let (mut found, mut seen) = (Vec::new(), 0);
    let threads = (0..trace.threads()).filter(|t| job.thread.is_none_or(|wanted| wanted == *t)).map(ThreadNumber);
    for thread in threads {
        in_thread(&trace, thread, &place, job.top, &mut found, &mut seen)?;
    }
    if job.json {
        output::print_json(&serde_json::json!({ "schema_version": SCHEMA_VERSION, "times": seen, "found": found }))?;
    } else {
        let mut out = BufWriter::new(output::text());
        for f in &found {
            writeln!(
                out,
                "thread {} #{}: {} (execution {})\n    in {}",
                f.thread,
                f.block,
                f.place,
                f.nth,
                escape::line(&f.calls.join(" > "))
            )?;
        }
        writeln!(
            out,
            "executions: {seen}{}",
            if (found.len() as u64) < seen && place.nth.is_none() { format!(", the first {} shown", found.len()) } else { String::new() }
        )?;
        out.flush()?;
    }
    Ok(if found.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Searches the pieces of a thread that have a function of the place.
fn in_thread(
    trace: &TraceFile,
    thread: ThreadNumber,
    place: &TraceLocation,
    top: usize,
    found: &mut Vec<Found>,
    seen: &mut u64,
) -> Result<()> {
    let wanted = place.functions(trace);
    for piece in trace.pieces(thread) {
        if !wanted.is_empty() && !wanted.iter().any(|f| piece.functions.binary_search(f).is_ok()) {
            continue;
        }
        let (mut frames, mut block) = (piece.frames.clone(), piece.first);
        for event in trace.events(piece)? {
            let is_call = follow(&mut frames, event, trace);
            if place.matches(event, block, is_call, trace) {
                *seen += 1;
                if found.len() < top && place.nth.is_none_or(|nth| nth == *seen) {
                    found.push(describe(trace, thread, event, block, *seen, &frames));
                }
            }
            block += u64::from(matches!(event, TraceEvent::Block(_)));
        }
    }
    Ok(())
}

fn describe(trace: &TraceFile, thread: ThreadNumber, event: TraceEvent, block: u64, nth: u64, frames: &TraceFrames) -> Found {
    let place = match event {
        TraceEvent::Block(at) => described(trace, at),
        _ => String::new(),
    };
    let calls = frames.open.iter().flatten().map(|f| trace.name(*f).to_owned()).collect();
    Found { thread: thread.0, block, nth, place, calls }
}
