//! Tests with CBP2025 records written from the published layout.

use super::*;
use trodden_hardware::{RetiredBranch, StreamEvent};

fn record(pc: u64, class: u8, memory: Option<u64>, branch: Option<Option<u64>>, inputs: &[u8], outputs: &[u8]) -> Vec<u8> {
    let mut bytes = pc.to_le_bytes().to_vec();
    bytes.push(class);
    if let Some(address) = memory {
        bytes.extend(address.to_le_bytes());
        bytes.extend([8, 0]);
        bytes.extend((class == STORE_CLASS).then_some(0));
    }
    if let Some(target) = branch {
        bytes.push(u8::from(target.is_some()));
        target.iter().for_each(|t| bytes.extend(t.to_le_bytes()));
    }
    bytes.push(inputs.len() as u8);
    bytes.extend(inputs);
    bytes.push(outputs.len() as u8);
    bytes.extend(outputs);
    for register in outputs {
        let size = if (FIRST_VECTOR_REGISTER..FLAGS_REGISTER).contains(register) { 16 } else { 8 };
        bytes.extend(vec![7; size]);
    }
    bytes
}

fn trace() -> Vec<Vec<u8>> {
    vec![
        record(0x1000, 0, None, None, &[1, 2], &[3, 64]),
        record(0x1004, LOAD_CLASS, Some(0x8000), None, &[3], &[33]),
        record(0x1008, CONDITIONAL_CLASS, None, Some(Some(0x1000)), &[64], &[]),
        record(0x1000, STORE_CLASS, Some(0x9000), None, &[3], &[]),
        record(0x1004, 6, None, None, &[33, 34], &[35]),
        record(0x1008, CONDITIONAL_CLASS, None, Some(None), &[64], &[]),
        record(0x100c, 9, None, Some(Some(0x2000)), &[], &[30]),
        record(0x2000, 11, None, Some(Some(0x1010)), &[30], &[]),
        record(0x1010, 7, None, None, &[1], &[1]),
    ]
}

fn read(bytes: &[u8]) -> (EventBatch, Result<SourceNotes, SourceError>) {
    let mut source = Cbp2025Source::new(bytes, Path::new("t.cbp"));
    let mut batch = EventBatch::default();
    loop {
        match source.read(&mut batch) {
            Ok(true) => {}
            Ok(false) => return (batch, Ok(source.notes())),
            Err(error) => return (batch, Err(error)),
        }
    }
}

#[test]
fn records_are_instructions_and_branches() {
    let (batch, notes) = read(&trace().concat());
    let branch = |address: u64, target: u64, kind, is_taken, instructions| {
        let (address, target, fall_through) = (Address(address), Address(target), Address(address + 4));
        StreamEvent::Branch(RetiredBranch { address, target, fall_through, kind, is_taken, instructions, stack: None })
    };
    let expected = vec![
        StreamEvent::Begin(Address(0x1000)),
        branch(0x1008, 0x1000, BranchKind::Conditional, true, 3),
        // The earlier outcome has shown the branch's target, so the branch is backward.
        branch(0x1008, 0x1000, BranchKind::Conditional, false, 3),
        branch(0x100c, 0x2000, BranchKind::Call, true, 1),
        branch(0x2000, 0x1010, BranchKind::Return, true, 1),
        StreamEvent::End(1),
    ];
    assert_eq!(batch.events.iter().map(|(_, e)| *e).collect::<Vec<_>>(), expected);
    assert_eq!((batch.instructions.len(), notes.unwrap().instructions), (9, 9));
    let load = batch.instructions[1];
    assert_eq!((load.load, load.sources[0], load.destinations[0]), (Some(Address(0x8000)), 4, 34));
    assert_eq!(batch.instructions[3].store, Some(Address(0x9000)));
    assert_eq!(batch.instructions[4].class, InstructionClass::Float);
}

#[test]
fn truncation_and_corrupt_records_are_reported_with_their_offset() {
    let records = trace();
    let whole = records.concat();
    let mut ends = vec![0];
    records.iter().for_each(|r| ends.push(ends[ends.len() - 1] + r.len()));
    for end in 1..whole.len() {
        let (_, result) = read(&whole[..end]);
        if ends.contains(&end) {
            assert!(result.is_ok(), "{end}");
        } else {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(&format!("truncated at offset {end}")), "{end}: {error}");
        }
    }
    let mut wrong = whole.clone();
    wrong[ends[1] + 8] = 99;
    let (batch, result) = read(&wrong);
    assert!(result.unwrap_err().to_string().contains(&format!("corrupt at offset {}", ends[1])));
    assert_eq!(batch.instructions.len(), 1);
}
