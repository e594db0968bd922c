//! Random executions with loops and calls, as events in the convention [`crate::events::CallRecordingConvention::Subpaths`].

use crate::events::{EventClass, SubpathEnd};
use trodden_testkit::Random;

pub fn subpath(function: u32, path: u64, end: SubpathEnd) -> u64 {
    let kind = match end {
        SubpathEnd::Call => 0,
        SubpathEnd::BackEdge => 1,
        SubpathEnd::Return => 2,
    };
    path << 32 | u64::from(function) << 8 | kind
}

pub fn enter(function: u32) -> u64 {
    u64::from(function) << 8 | 3
}

pub const LEAVE: u64 = 4;

pub fn class(symbol: u64) -> EventClass {
    let function = (symbol >> 8) as u32 & 0xff_ffff;
    match symbol & 0xff {
        0 => EventClass::Subpath { function, end: SubpathEnd::Call },
        1 => EventClass::Subpath { function, end: SubpathEnd::BackEdge },
        2 => EventClass::Subpath { function, end: SubpathEnd::Return },
        3 => EventClass::Enter,
        _ => EventClass::Leave,
    }
}

/// Generates an execution of about `max_events` events.
pub fn random_execution(seed: u64, max_events: usize) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut events = Vec::new();
    let max_depth = 1 + random.index(6);
    while events.len() < max_events && random.chance(80) {
        push_call(&mut random, &mut events, max_depth, max_events);
    }
    events
}

fn push_call(random: &mut Random, events: &mut Vec<u64>, max_depth: usize, max_events: usize) {
    let function = random.below(4) as u32;
    events.push(enter(function));
    if random.chance(90) {
        push_frame(random, events, function, max_depth, max_events);
    }
    events.push(LEAVE);
}

fn push_frame(random: &mut Random, events: &mut Vec<u64>, function: u32, max_depth: usize, max_events: usize) {
    // There are only three different bodies, so that they repeat.
    let mut body = Random::new(random.below(3));
    let iterations = random.index(4);
    for iteration in 0..=iterations {
        for _ in 0..body.index(3) {
            events.push(subpath(function, body.below(2), SubpathEnd::Call));
            // Some calls record no events.
            if max_depth > 0 && events.len() < max_events && !body.chance(15) {
                push_call(random, events, max_depth - 1, max_events);
            }
        }
        let end = if iteration == iterations { SubpathEnd::Return } else { SubpathEnd::BackEdge };
        events.push(subpath(function, body.below(2), end));
    }
}
