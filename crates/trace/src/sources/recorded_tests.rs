//! Tests that recordings are read back as they were written, and that corrupt bytes are reported with their offset.

use super::super::{RecordedWriter, Recording};
use super::*;

/// Pseudo-random numbers (a linear congruential generator with Knuth's multiplier).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn events(seed: u64, number: usize) -> Vec<(ThreadId, StreamEvent)> {
    let mut numbers = Numbers(seed);
    let mut event = || {
        let thread = ThreadId(numbers.below(3) as u32);
        let address = Address(0x7fff_ffff_0000 + numbers.below(64) * 0x1_0001);
        let event = match numbers.below(12) {
            0 => StreamEvent::Begin(address),
            1 => StreamEvent::Interrupt(address),
            2 => StreamEvent::Resume(address),
            3 => StreamEvent::Gap(address),
            4 => StreamEvent::End(numbers.below(1 << 20) as u32),
            _ => StreamEvent::Branch(RetiredBranch {
                address,
                target: Address([0, u64::MAX, address.0 - 5, address.0 + 0x1234][numbers.below(4) as usize]),
                fall_through: Address(address.0 + 2),
                kind: BranchKind::ALL[numbers.below(6) as usize],
                is_taken: numbers.below(2) == 0,
                instructions: numbers.below(200) as u32,
                stack: [None, Some(Address(0)), Some(Address(u64::MAX)), Some(address)][numbers.below(4) as usize],
            }),
        };
        (thread, event)
    };
    (0..number).map(|_| event()).collect()
}

fn notes() -> SourceNotes {
    let mapping = MappedFile { process: 0, start: 0x1000, length: 0x2000, offset: 0x40, build_id: None, path: "/usr/bin/my prog".into() };
    SourceNotes { notes: vec!["a note".into()], mappings: vec![mapping], instructions: 12345, ..SourceNotes::default() }
}

fn recording(events: &[(ThreadId, StreamEvent)]) -> Vec<u8> {
    let properties =
        Recording { origin: "a program".into(), level: SourceDetail::Branches, knows_return_addresses: true, knows_frames: true };
    let mut writer = RecordedWriter::new(Vec::new(), &properties).unwrap();
    for chunk in events.chunks(1000) {
        writer.write(&EventBatch { events: chunk.to_vec(), instructions: Vec::new() }).unwrap();
    }
    writer.finish(&notes()).unwrap()
}

/// Generates the instructions for events: few different runs, with varying accesses.
fn instructions(seed: u64, events: &[(ThreadId, StreamEvent)]) -> Vec<trodden_hardware::Instruction> {
    use trodden_hardware::{Instruction, InstructionClass};
    let mut numbers = Numbers(seed);
    let mut instructions = Vec::new();
    for (_, event) in events {
        let start = 0x40_0000 + numbers.below(7) * 0x1000;
        for at in 0..super::super::recorded_instructions::counted_instructions(event) as u64 {
            let class = [InstructionClass::Integer, InstructionClass::FloatDivide, InstructionClass::Multiply][(at % 3) as usize];
            let mut access = |of: u64| (start & 0x1000 != 0 && at.is_multiple_of(of)).then(|| Address(varying_address(&mut numbers)));
            let (load, store) = (access(2), access(5));
            instructions.push(Instruction {
                address: Address(start + 4 * at),
                class,
                sources: [1, at as u8, 0, 7],
                destinations: [3, 0],
                load,
                store,
            });
        }
    }
    instructions
}

fn varying_address(numbers: &mut Numbers) -> u64 {
    [u64::MAX, 0, 0x7fff_0000][numbers.below(3) as usize].wrapping_add(numbers.below(1 << 12))
}

#[test]
fn instructions_are_read_back() {
    for (seed, number) in [(7, 0), (8, 3), (9, 50_000)] {
        // Branches have fewer than 200 instructions; ends with more are dropped.
        let events: Vec<_> = events(seed, number).into_iter().filter(|(_, e)| !matches!(e, StreamEvent::End(n) if *n > 200)).collect();
        let expected = instructions(seed, &events);
        let properties = Recording {
            origin: "a program".into(),
            level: SourceDetail::Instructions,
            knows_return_addresses: seed != 9,
            knows_frames: seed != 8,
        };
        let mut writer = RecordedWriter::new(Vec::new(), &properties).unwrap();
        // Instructions may be added before their events.
        let early = expected.len().min(100);
        writer.write(&EventBatch { events: Vec::new(), instructions: expected[..early].to_vec() }).unwrap();
        writer.write(&EventBatch { events: events.clone(), instructions: expected[early..].to_vec() }).unwrap();
        let bytes = writer.finish(&notes()).unwrap();
        let mut source = RecordedSource::new(&bytes[..], Path::new("file")).unwrap();
        assert_eq!(
            (source.level(), source.knows_return_addresses(), source.knows_frames()),
            (SourceDetail::Instructions, seed != 9, seed != 8)
        );
        let mut batch = EventBatch::default();
        while source.read(&mut batch).unwrap() {}
        assert!(batch.events == events && batch.instructions == expected, "{number} events");
        assert!(bytes.len() < 4096 + 4 * expected.len(), "{} bytes for {} instructions", bytes.len(), expected.len());
    }
}

/// Reads the events, and returns them with the error that ends the reading, if any.
fn read(bytes: &[u8]) -> (Vec<(ThreadId, StreamEvent)>, Result<SourceNotes, SourceError>) {
    let mut batch = EventBatch::default();
    let result = RecordedSource::new(bytes, Path::new("file")).and_then(|mut source| {
        while source.read(&mut batch)? {}
        Ok(source.notes())
    });
    (batch.events, result)
}

#[test]
fn events_and_notes_are_read_back() {
    for (seed, number) in [(1, 0), (2, 1), (3, 5000), (4, 600_000)] {
        let events = events(seed, number);
        let (back, notes_back) = read(&recording(&events));
        assert!(back == events, "{number} events");
        let notes_back = notes_back.unwrap();
        assert_eq!((notes_back.notes, notes_back.mappings, notes_back.instructions), (notes().notes, notes().mappings, 12345));
    }
}

#[test]
fn truncated_recording_keeps_its_events() {
    let events = events(5, 300_000);
    let whole = recording(&events);
    for end in (0..whole.len()).step_by(whole.len() / 23).chain([11, 12, whole.len() - 1, whole.len() - 20]) {
        let (back, result) = read(&whole[..end]);
        let error = result.unwrap_err();
        assert!(matches!(&error, SourceError::Truncated { offset, .. } if *offset == end as u64), "{end}: {error}");
        assert!(events.starts_with(&back), "{end}");
    }
}

#[test]
fn every_changed_byte_is_detected() {
    let events = events(6, 300);
    let whole = recording(&events);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        let (back, result) = read(&changed);
        assert!(result.is_err() && events.starts_with(&back), "byte {at}");
    }
}
