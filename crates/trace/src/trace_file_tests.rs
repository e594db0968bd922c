//! Tests of trace files.

use super::*;

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
    for _ in 0..MAX_BLOCK_EVENTS {
        all.extend([call, callee, TraceEvent::Return, TraceEvent::Block(TraceBlock(1))]);
    }
    all.iter().for_each(|event| writer.push(ThreadNumber(1), *event).unwrap());
    writer.finish(&TraceEndRecord::default()).unwrap();
    let trace = TraceFile::open(&path).unwrap();
    assert_eq!(trace.stream(ThreadNumber(1)).collect::<Result<Vec<_>, _>>().unwrap(), all);
    let piece = trace.piece_at(ThreadNumber(1), 50_000).unwrap();
    assert!(piece.first > 30_000 && piece.first <= 50_000);
    assert_eq!(piece.frames.open.first(), Some(&Some(TraceFunction(0))));
    assert_eq!(piece.functions, [TraceFunction(0), TraceFunction(1)]);
    assert_eq!((trace.threads(), trace.pieces(ThreadNumber(0)).count()), (2, 0));
}
