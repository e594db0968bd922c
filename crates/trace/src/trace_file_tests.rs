//! Tests of trace files.

use super::*;
use crate::{BlockLead, BlockSymbol, TraceWriter};

fn about() -> TraceDescription {
    let functions = ["main", "callee"].map(|name| TracedFunctionInfo { name: name.to_owned(), address: 0x1000 });
    let block = |address: u64, function: u32| TracedBlockInfo { address, size: 4, function: TraceFunction(function), lines: Vec::new() };
    TraceDescription {
        functions: functions.to_vec(),
        blocks: vec![block(0x1000, 0), block(0x1004, 0), block(0x2000, 1)],
        ..TraceDescription::default()
    }
}

#[test]
fn any_position_is_found_with_its_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.trace");
    let mut writer = TraceWriter::create(&path, &about()).unwrap();
    let (main, callee) = (TraceEvent::Block(TraceBlock(0)), TraceEvent::Block(TraceBlock(2)));
    let call = TraceEvent::Call { outside: false, tail: false };
    let mut all = vec![TraceEvent::Call { outside: true, tail: false }, main];
    for _ in 0..MAX_PIECE_SYMBOLS {
        all.extend([call, callee, TraceEvent::Return, TraceEvent::Block(TraceBlock(1))]);
    }
    all.iter().for_each(|event| writer.push(ThreadNumber(1), *event).unwrap());
    writer.finish(&TraceEndRecord::default()).unwrap();
    let trace = TraceFile::open(&path).unwrap();
    assert_eq!(trace.stream(ThreadNumber(1)).collect::<Result<Vec<_>, _>>().unwrap(), all);
    let piece = trace.piece_at(ThreadNumber(1), 100_000).unwrap();
    assert!(piece.first > 50_000 && piece.first <= 100_000);
    assert_eq!(piece.frames.open.first(), Some(&Some(TraceFunction(0))));
    assert_eq!(piece.functions, [TraceFunction(0), TraceFunction(1)]);
    assert_eq!((trace.threads(), trace.pieces(ThreadNumber(0)).count()), (2, 0));
}

/// Returns events of calls and returns that seem random: blocks 0 and 1 are in `main`, and block 2 is in `callee`.
fn random_events(count: usize) -> Vec<TraceEvent> {
    let mut state = 5_u32;
    let mut random = |limit: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % limit
    };
    let (mut stack, mut events) = (Vec::new(), Vec::new());
    while events.len() < count {
        let (choice, function) = (random(40), random(2));
        match choice {
            _ if stack.is_empty() => events.push(TraceEvent::Call { outside: true, tail: false }),
            0..6 if stack.len() < 50 => events.push(TraceEvent::Call { outside: choice == 0, tail: false }),
            6 | 7 => {
                stack.pop();
                events.push(TraceEvent::Call { outside: choice == 6, tail: true });
            }
            8..14 if stack.len() > 1 => {
                stack.pop();
                events.push(if choice == 8 { TraceEvent::Unwind } else { TraceEvent::Return });
                // Sometimes, a return and a call follow each other.
                if choice < 11 {
                    continue;
                }
            }
            _ => {}
        }
        if let Some(TraceEvent::Call { .. }) = events.last() {
            stack.push(function);
        }
        let function = *stack.last().expect("a function is open");
        events.push(TraceEvent::Block(TraceBlock(if function == 0 { random(2) } else { 2 })));
    }
    events
}

/// Writes events by [`ThreadWriter::push_blocks_while`](crate::ThreadWriter::push_blocks_while), and only those by `push` that it cannot
/// write.
fn write_blocks_together(writer: &mut TraceWriter, thread: ThreadNumber, events: &[TraceEvent]) {
    let mut writer = writer.thread(thread);
    let mut rest = events;
    while !rest.is_empty() {
        let mut next = || {
            let (mut lead, mut after) = (BlockLead::NONE, rest);
            loop {
                let (event, more) = after.split_first()?;
                after = more;
                lead = match event {
                    TraceEvent::Block(block) => {
                        rest = after;
                        return BlockSymbol::new(lead, *block);
                    }
                    TraceEvent::Return => lead.followed_by(BlockLead::RETURN)?,
                    TraceEvent::Call { outside: false, tail } => {
                        lead.followed_by(if *tail { BlockLead::TAIL_CALL } else { BlockLead::CALL })?
                    }
                    _ => return None,
                };
            }
        };
        writer.push_blocks_while(&mut next).unwrap();
        if let Some((event, after)) = rest.split_first() {
            writer.push(*event).unwrap();
            rest = after;
        }
    }
}

#[test]
fn both_ways_to_write_give_the_same_trace() {
    let folder = tempfile::tempdir().unwrap();
    let events = random_events(5 * MAX_PIECE_SYMBOLS as usize);
    let (single, together) = (ThreadNumber(0), ThreadNumber(1));
    let path = folder.path().join("t.trace");
    let mut writer = TraceWriter::create(&path, &about()).unwrap();
    events.iter().for_each(|event| writer.push(single, *event).unwrap());
    write_blocks_together(&mut writer, together, &events);
    writer.finish(&TraceEndRecord::default()).unwrap();
    let trace = TraceFile::open(&path).unwrap();
    for thread in [single, together] {
        let (mut frames, mut block_count, mut all) = (TraceFrameStack::default(), 0, Vec::new());
        assert!(trace.pieces(thread).count() > 2);
        for piece in trace.pieces(thread) {
            assert_eq!((piece.first, &piece.frames), (block_count, &frames));
            let mut functions = std::collections::BTreeSet::new();
            for event in trace.events(piece).unwrap() {
                frames.follow(event, |block| trace.function_of(block));
                if let TraceEvent::Block(block) = event {
                    functions.insert(trace.function_of(block));
                    block_count += 1;
                }
                all.push(event);
            }
            assert!(piece.functions.iter().eq(functions.iter()));
        }
        assert!(all == events);
    }
}
