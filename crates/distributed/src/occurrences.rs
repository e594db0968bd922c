//! Finds occurrences of a place in a trace: calls of a function, or executions of a line.

use crate::calls::check_thread;
use crate::place::{TraceLocation, describe_block, follow_event};
use anyhow::Result;
use serde::Serialize;
use trodden_trace::{ThreadNumber, TraceEvent, TraceFile, TraceFrameStack};

/// One execution of a place.
#[derive(Debug, Serialize)]
pub struct Occurrence {
    /// The thread.
    pub thread: u32,
    /// Number of blocks that the thread executed before this occurrence.
    pub block: u64,
    /// Number of this occurrence among all occurrences in the searched threads, counted from 1, thread by thread.
    pub nth: u64,
    /// The executed block.
    pub place: String,
    /// Names of the functions that had not returned, outermost first.
    pub calls: Vec<String>,
}

/// Executions of a place.
#[derive(Debug)]
pub struct PlaceOccurrences {
    /// The number of executions.
    pub seen: u64,
    /// Descriptions of the first occurrences. If the user asked for the nth occurrence, only that one.
    pub found: Vec<Occurrence>,
}

/// Finds the occurrences of a place in one thread or in all threads, and describes the first `top` of them.
pub fn find_place_occurrences(trace: &TraceFile, place: &TraceLocation, thread: Option<u32>, top: usize) -> Result<PlaceOccurrences> {
    check_thread(trace, thread)?;
    let (mut found, mut seen) = (Vec::new(), 0);
    let threads = (0..trace.threads()).filter(|t| thread.is_none_or(|wanted| wanted == *t)).map(ThreadNumber);
    for thread in threads {
        find_occurrences_in_thread(trace, thread, place, top, &mut found, &mut seen)?;
    }
    Ok(PlaceOccurrences { seen, found })
}

/// Searches one thread. Parts of its trace in which none of the place's functions are executed are skipped.
fn find_occurrences_in_thread(
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
                    found.push(describe_occurrence(trace, thread, event, block, *seen, &frames));
                }
            }
            block += u64::from(matches!(event, TraceEvent::Block(_)));
        }
    }
    Ok(())
}

fn describe_occurrence(
    trace: &TraceFile,
    thread: ThreadNumber,
    event: TraceEvent,
    block: u64,
    nth: u64,
    frames: &TraceFrameStack,
) -> Occurrence {
    let place = match event {
        TraceEvent::Block(at) => describe_block(trace, at),
        _ => String::new(),
    };
    let calls = frames.open.iter().flatten().map(|f| trace.name(*f).to_owned()).collect();
    Occurrence { thread: thread.0, block, nth, place, calls }
}
