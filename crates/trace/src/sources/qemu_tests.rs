//! Tests with a hand-written stream of executed blocks: branches, handlers, corrupt bytes.

use super::*;
use trodden_container::FileHeader;

#[derive(Default)]
struct QemuStream(Vec<u8>, u64);

impl QemuStream {
    fn new() -> QemuStream {
        QemuStream(FileHeader::new(FileKind::BLOCKS, VERSION).to_bytes().to_vec(), 0)
    }

    fn frame(mut self, kind: FrameKind, thread: u32, content: &[u8]) -> QemuStream {
        self.0.extend(FrameHeader::new(kind, thread, content).to_bytes());
        self.0.extend(content);
        self
    }

    fn block(mut self, start: u64, instructions: &[&[u8]]) -> QemuStream {
        let mut content = BlockHeader { number: self.1, address: start, instructions: instructions.len() as u64 }.to_bytes().to_vec();
        content.extend(instructions.iter().map(|i| i.len() as u8));
        content.extend(instructions.concat());
        self.1 += 1;
        self.frame(FrameKind::Block, 0, &content)
    }

    fn executed(self, thread: u32, words: &[u64]) -> QemuStream {
        let content: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.frame(FrameKind::Executed, thread, &content)
    }

    /// Adds blocks 0 to 5: a conditional branch at 0x1001, its successors at 0x1003 and 0x1013, a handler at 0x2000, the code that leaves
    /// the handler, and the code after 0x1013.
    fn with_blocks() -> QemuStream {
        QemuStream::new()
            .block(0x1000, &[&[0x90], &[0x74, 0x10]])
            .block(0x1003, &[&[0x90], &[0xeb, 0xfa]])
            .block(0x1013, &[&[0xf3, 0xa4]])
            .block(0x2000, &[&[0xc3]])
            .block(0x3000, &[&[0xb8, 0x0f, 0, 0, 0], &[0x0f, 0x05]])
            .block(0x1015, &[&[0x0f, 0x05]])
    }

    fn events(self) -> (Vec<(u32, StreamEvent)>, SourceNotes) {
        let mut source = QemuSource::new(&self.0[..], Path::new("pipe"), SourceDetail::Branches).unwrap();
        let mut batch = EventBatch::default();
        while source.read(&mut batch).unwrap() {}
        (batch.events.iter().map(|(t, e)| (t.0, *e)).collect(), source.notes())
    }
}

fn conditional(is_taken: bool, instructions: u32) -> StreamEvent {
    let (address, target, fall_through) = (Address(0x1001), Address(0x1013), Address(0x1003));
    StreamEvent::Branch(RetiredBranch { address, target, fall_through, kind: BranchKind::Conditional, is_taken, instructions, stack: None })
}

fn jump() -> StreamEvent {
    let (address, target, fall_through) = (Address(0x1004), Address(0x1000), Address(0x1006));
    StreamEvent::Branch(RetiredBranch {
        address,
        target,
        fall_through,
        kind: BranchKind::Jump,
        is_taken: true,
        instructions: 2,
        stack: None,
    })
}

#[test]
fn threads_are_separated_and_string_instructions_count_once() {
    let stream = QemuStream::with_blocks().executed(0, &[0, 1]).executed(1, &[0]).executed(0, &[0, 2, 2, 2, 5]).executed(1, &[1, 0]).frame(
        FrameKind::End,
        0,
        &[0; 8],
    );
    let (events, notes) = stream.events();
    let begin = StreamEvent::Begin(Address(0x1000));
    let expected = vec![
        (0, begin),
        (0, conditional(false, 2)),
        (1, begin),
        (0, jump()),
        (0, conditional(true, 2)),
        (1, conditional(false, 2)),
        (1, jump()),
        (0, StreamEvent::End(2)),
        (1, StreamEvent::End(2)),
    ];
    assert_eq!(events, expected);
    assert_eq!((notes.instructions, notes.notes.len()), (14, 0));
}

#[test]
fn interrupted_transitions_complete_after_the_handler() {
    let stream = QemuStream::with_blocks()
        .frame(FrameKind::Handler, 0, &0x2000u64.to_le_bytes())
        .executed(0, &[0, 3, 4, SIGNAL_HANDLER_RETURN_WORD, 1, 0])
        .frame(FrameKind::End, 0, &[0; 8]);
    let (events, notes) = stream.events();
    let back = RetiredBranch {
        address: Address(0x2000),
        target: Address(0x3000),
        fall_through: Address(0x2001),
        kind: BranchKind::Return,
        is_taken: true,
        instructions: 1,
        stack: None,
    };
    let expected = [
        StreamEvent::Begin(Address(0x1000)),
        StreamEvent::Interrupt(Address(0x2000)),
        StreamEvent::Branch(back),
        StreamEvent::Resume(Address(0x1003)),
        // The two instructions that leave the handler are counted for the interrupted block.
        conditional(false, 4),
        jump(),
        StreamEvent::End(2),
    ];
    assert_eq!(events.iter().map(|(_, e)| *e).collect::<Vec<_>>(), expected);
    assert_eq!(notes.notes, Vec::<String>::new());
}

#[test]
fn unexplained_transitions_are_gaps() {
    let (events, notes) = QemuStream::with_blocks().executed(0, &[0, 3]).events();
    assert_eq!(events[1], (0, StreamEvent::Gap(Address(0x2000))));
    assert!(notes.notes.iter().any(|n| n.contains("killed")) && notes.notes.iter().any(|n| n.ends_with("allows: 1")));
}

#[test]
fn corrupt_data_is_reported_with_its_offset() {
    let failure = |stream: QemuStream| {
        let mut source = QemuSource::new(&stream.0[..], Path::new("pipe"), SourceDetail::Branches)?;
        let mut batch = EventBatch::default();
        while source.read(&mut batch)? {}
        Ok::<_, SourceError>(())
    };
    let text = |stream: QemuStream| failure(stream).unwrap_err().to_string();
    assert!(text(QemuStream::with_blocks().executed(0, &[9])).contains("block 9"));
    let mut truncated = QemuStream::with_blocks().executed(0, &[0, 1]);
    truncated.0.truncate(truncated.0.len() - 3);
    let end = truncated.0.len();
    assert!(text(truncated).contains(&format!("truncated at offset {end}")));
    let mut wrong = QemuStream::new().frame(FrameKind::Fork, 0, &[]);
    wrong.0[FILE_HEADER_BYTES] = 99;
    assert!(text(wrong).contains(&format!("corrupt at offset {FILE_HEADER_BYTES}")));
    assert!(text(QemuStream(b"something else that is long enough for a header".to_vec(), 0)).contains("not a stream"));
    let newer = FileHeader::new(FileKind::BLOCKS, VERSION + 1).to_bytes();
    assert!(text(QemuStream(newer.to_vec(), 0)).contains(&format!("writes version {}", VERSION + 1)));
    for at in 0..FILE_HEADER_BYTES {
        let mut corrupt = QemuStream::with_blocks().executed(0, &[0, 1]);
        corrupt.0[at] ^= 1;
        assert!(text(corrupt).contains("not a stream"), "byte {at}");
    }
}

#[test]
fn memory_accesses_belong_to_their_instructions() {
    use trodden_wire::blocks::encode_memory_access;
    // mov rax, [rbx]; add [rcx], rax; jmp to itself.
    let stream = QemuStream::new()
        .block(0x1000, &[&[0x48, 0x8b, 0x03], &[0x48, 0x01, 0x01], &[0xeb, 0xf8]])
        .executed(
            0,
            &[
                0,
                encode_memory_access(0, 0x8000, 3, false),
                encode_memory_access(1, 0x9000, 3, false),
                encode_memory_access(1, 0x9000, 3, true),
                0,
            ],
        )
        .frame(FrameKind::End, 0, &[0; 8]);
    let mut source = QemuSource::new(&stream.0[..], Path::new("pipe"), SourceDetail::Instructions).unwrap();
    let mut batch = EventBatch::default();
    while source.read(&mut batch).unwrap() {}
    assert_eq!(batch.instructions.len(), 6);
    let [load, add, jump] = [batch.instructions[0], batch.instructions[1], batch.instructions[2]];
    assert_eq!((load.address, load.load, load.store), (Address(0x1000), Some(Address(0x8000)), None));
    assert_eq!((add.load, add.store), (Some(Address(0x9000)), Some(Address(0x9000))));
    assert_eq!((jump.load, jump.store), (None, None));
    // The addition depends on the load.
    assert!(add.sources.contains(&load.destinations[0]));
}
