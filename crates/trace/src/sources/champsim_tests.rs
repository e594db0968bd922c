//! Tests with ChampSim records written from the published layout.

use super::*;
use trodden_hardware::{RetiredBranch, StreamEvent};

fn record(ip: u64, branch: Option<bool>, writes: &[u8], reads: &[u8], load: u64) -> Vec<u8> {
    let mut bytes = ip.to_le_bytes().to_vec();
    bytes.extend([u8::from(branch.is_some()), u8::from(branch == Some(true))]);
    bytes.extend((0..2).map(|at| writes.get(at).copied().unwrap_or(0)));
    bytes.extend((0..4).map(|at| reads.get(at).copied().unwrap_or(0)));
    bytes.extend([0; 16]);
    bytes.extend(load.to_le_bytes());
    bytes.extend([0; 24]);
    bytes
}

fn trace() -> Vec<u8> {
    let conditional = |ip, taken| record(ip, Some(taken), &[26], &[26, 25], 0);
    [
        record(0x1000, None, &[3], &[4], 0x8000),
        conditional(0x1004, false),
        record(0x1006, Some(true), &[26, 6], &[26, 6], 0),
        record(0x2000, Some(true), &[26, 6], &[6], 0),
        record(0x100b, Some(true), &[26], &[9], 0),
        conditional(0x1004, true),
        record(0x1100, Some(true), &[26], &[26], 0),
        record(0x1200, None, &[], &[], 0),
    ]
    .concat()
}

fn read(bytes: &[u8]) -> (EventBatch, Result<SourceNotes, SourceError>) {
    let mut source = ChampSimSource::new(bytes, Path::new("t.champsim"));
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
fn kinds_follow_from_registers_and_targets_from_the_next_record() {
    let (batch, notes) = read(&trace());
    let branches: Vec<RetiredBranch> =
        batch.events.iter().filter_map(|(_, e)| if let StreamEvent::Branch(b) = e { Some(*b) } else { None }).collect();
    let kinds: Vec<(BranchKind, bool, u64)> = branches.iter().map(|b| (b.kind, b.is_taken, b.next().0)).collect();
    let expected = [
        (BranchKind::Conditional, false, 0x1006),
        (BranchKind::Call, true, 0x2000),
        (BranchKind::Return, true, 0x100b),
        (BranchKind::IndirectJump, true, 0x1004),
        (BranchKind::Conditional, true, 0x1100),
        (BranchKind::Jump, true, 0x1200),
    ];
    assert_eq!(kinds, expected);
    // An earlier outcome has shown the branch's fall-through address.
    assert_eq!(branches[4].fall_through, Address(0x1006));
    assert_eq!((batch.instructions.len(), batch.instructions[0].load), (8, Some(Address(0x8000))));
    assert_eq!(notes.unwrap().instructions, 8);
    assert_eq!(batch.events.last().unwrap().1, StreamEvent::End(1));
}

#[test]
fn truncation_and_corrupt_records_are_reported_with_their_offset() {
    let whole = trace();
    let (batch, result) = read(&whole[..200]);
    assert!(result.unwrap_err().to_string().contains("truncated at offset 200"));
    assert_eq!(batch.instructions.len(), 2);
    let mut wrong = whole.clone();
    wrong[64 + 8] = 9;
    assert!(read(&wrong).1.unwrap_err().to_string().contains("corrupt at offset 64"));
}
