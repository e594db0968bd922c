//! Recordings come back as they were written; damage anywhere is noticed, and named with its offset.

use super::super::{RecordedWriter, Recording};
use super::*;

/// Numbers that look random (Knuth's multiplier).
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
            }),
        };
        (thread, event)
    };
    (0..number).map(|_| event()).collect()
}

fn notes() -> SourceNotes {
    let mapping = Mapping { process: 0, start: 0x1000, length: 0x2000, offset: 0x40, build_id: None, path: "/usr/bin/my prog".into() };
    SourceNotes { notes: vec!["a note".into()], mappings: vec![mapping], instructions: 12345 }
}

fn recording(events: &[(ThreadId, StreamEvent)]) -> Vec<u8> {
    let mut writer = RecordedWriter::new(Vec::new(), &Recording { origin: "a program".into() }).unwrap();
    events.chunks(1000).for_each(|chunk| writer.write(chunk).unwrap());
    writer.finish(&notes()).unwrap()
}

/// What is read, and the error that ends it.
fn read(bytes: &[u8]) -> (Vec<(ThreadId, StreamEvent)>, Result<SourceNotes, SourceError>) {
    let mut batch = Batch::default();
    let result = RecordedSource::new(bytes, Path::new("file")).and_then(|mut source| {
        while source.read(&mut batch)? {}
        Ok(source.notes())
    });
    (batch.events, result)
}

#[test]
fn a_recording_comes_back() {
    for (seed, number) in [(1, 0), (2, 1), (3, 5000), (4, 600_000)] {
        let events = events(seed, number);
        let (back, notes_back) = read(&recording(&events));
        assert!(back == events, "{number} events");
        let notes_back = notes_back.unwrap();
        assert_eq!((notes_back.notes, notes_back.mappings, notes_back.instructions), (notes().notes, notes().mappings, 12345));
    }
}

#[test]
fn a_cut_recording_keeps_what_came_before() {
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
fn a_changed_byte_is_noticed() {
    let events = events(6, 300);
    let whole = recording(&events);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        let (back, result) = read(&changed);
        assert!(result.is_err() && events.starts_with(&back), "byte {at}");
    }
}
