//! Occurrences of a place in a trace: calls of a function, or executions of a line.

use crate::calls::check_thread;
use crate::place::{TraceLocation, describe_block, follow_event};
use anyhow::Result;
use serde::Serialize;
use trodden_trace::{ThreadNumber, TraceEvent, TraceFile, TraceFrames};

/// One execution of a place.
#[derive(Debug, Serialize)]
pub struct Occurrence {
    /// The thread.
    pub thread: u32,
    /// Number of the thread's blocks before this execution.
    pub block: u64,
    /// Number of this execution among all executions in the searched threads (thread by thread), from 1.
    pub nth: u64,
    /// The executed block.
    pub place: String,
    /// Names of the open functions, outermost first.
    pub calls: Vec<String>,
}

/// Executions of a place.
#[derive(Debug)]
pub struct PlaceOccurrences {
    /// The number of executions.
    pub seen: u64,
    /// The first executions; if the user requested the nth execution, only that one.
    pub found: Vec<Occurrence>,
}

/// Finds the executions of a place in one thread or in all threads, and describes the first `top` of them.
pub fn occurrences(trace: &TraceFile, place: &TraceLocation, thread: Option<u32>, top: usize) -> Result<PlaceOccurrences> {
    check_thread(trace, thread)?;
    let (mut found, mut seen) = (Vec::new(), 0);
    let threads = (0..trace.threads()).filter(|t| thread.is_none_or(|wanted| wanted == *t)).map(ThreadNumber);
    for thread in threads {
        find_in_thread(trace, thread, place, top, &mut found, &mut seen)?;
    }
    Ok(PlaceOccurrences { seen, found })
}

/// Searches only those pieces of the thread's trace that contain one of the place's functions.
fn find_in_thread(
    trace: &TraceFile,
    thread: ThreadNumber,
    place: &TraceLocation,
    top: usize,
    found: &mut Vec<Occurrence>,
    seen: &mut u64,
) -> Result<()> {
    let wanted = place.functions(trace);
    for piece in trace.pieces(thread) {
        if !wanted.is_empty() && !wanted.iter().any(|f| piece.functions.binary_search(f).is_ok()) {
            continue;
        }
        let (mut frames, mut block) = (piece.frames.clone(), piece.first);
        for event in trace.events(piece)? {
            let is_call = follow_event(&mut frames, event, trace);
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

fn describe(trace: &TraceFile, thread: ThreadNumber, event: TraceEvent, block: u64, nth: u64, frames: &TraceFrames) -> Occurrence {
    let place = match event {
        TraceEvent::Block(at) => describe_block(trace, at),
        _ => String::new(),
    };
    let calls = frames.open.iter().flatten().map(|f| trace.name(*f).to_owned()).collect();
    Occurrence { thread: thread.0, block, nth, place, calls }
}
