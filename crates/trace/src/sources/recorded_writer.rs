//! Writes the compact format of recorded branches.
//!
//! Programs execute few different branches, each with few targets and few distances from the branch before. So each distinct event is
//! described once and then referred to by a number, and the result is compressed with zstd. Numbers are assigned in the order of first
//! appearance.
//!
//! A recording is a [container](trodden_container) file whose header has flags (1: instructions; 2: no return addresses; 4: frames). Each
//! chunk is a section with its kind as tag:
//!
//! ```text
//! Origin    text: the recording's origin
//! Instructions  see `recorded_instructions.rs`; with flag 1, before each chunk of events
//! Events    number of new events | new events | runs: thread, number of events, their numbers
//! Notes     instructions | number of notes | notes, each with its length | number of mappings | start, length, offset, path of each
//! End       empty
//! ```
//! All numbers in contents are LEB128. A branch's target and fall-through address are zigzag differences from its own address. With frames,
//! calls and returns have the stack address of their return address, if it is known, as the difference from the stack address at the
//! thread's previous call or return. This difference is usually constant for a given branch. Memory grows with the number of different
//! events.

use super::recorded_instructions::InstructionEncoder;
use super::{BranchSource, EventBatch, SourceDetail, SourceNotes};
use crate::numbers::{push_number, zigzag_encode};
use std::collections::HashMap;
use std::io::{self, Write};
use trodden_container::{FileHeader, FileKind, Section};
use trodden_hardware::{Address, BranchKind, RetiredBranch, StreamEvent, ThreadId};

/// Version of the format of [`FileKind::BRANCHES`].
pub const VERSION: u32 = 3;
/// Flag: the recording has instructions.
pub const HAS_INSTRUCTIONS_FLAG: u64 = 1;
/// Flag: calls do not have their return addresses.
pub const LACKS_RETURN_ADDRESSES_FLAG: u64 = 2;
/// Flag: calls and returns include the stack address at which the return address is stored.
pub const HAS_FRAMES_FLAG: u64 = 4;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChunkKind {
    Origin = 1,
    Events = 2,
    /// Information for the user.
    Notes = 3,
    End = 4,
    /// Instructions for the events of the next chunk.
    Instructions = 5,
}

const COMPRESSION_LEVEL: i32 = 3;
/// Approximate number of events per chunk.
const MAX_CHUNK_EVENTS: usize = 1 << 18;
/// Approximate number of events per chunk in recordings with instructions. There are about ten instructions per event.
const MAX_CHUNK_EVENTS_WITH_INSTRUCTIONS: usize = 1 << 15;

/// The properties of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The command that ran, or the file that was read.
    pub origin: String,
    /// The level of detail.
    pub level: SourceDetail,
    /// True if the records of calls have the return addresses.
    pub knows_return_addresses: bool,
    /// True if the records of calls and returns have the stack address of the return address.
    pub knows_frames: bool,
}

impl Recording {
    /// Describes a recording of a source.
    pub fn describe_source(origin: &str, source: &dyn BranchSource) -> Recording {
        let (level, knows_return_addresses, knows_frames) = (source.level(), source.knows_return_addresses(), source.knows_frames());
        Recording { origin: origin.to_owned(), level, knows_return_addresses, knows_frames }
    }
}

/// Writes a recording.
pub struct RecordedWriter<W> {
    writer: W,
    numbers: HashMap<StreamEvent, u64>,
    /// Number and descriptions of events that are new in this chunk.
    definitions: (u64, Vec<u8>),
    /// The events, as runs of one thread each.
    runs: Vec<(ThreadId, Vec<u64>)>,
    events: usize,
    instructions: Option<InstructionEncoder>,
    /// For each thread, the stack address of the return address at its last call or return.
    frames: HashMap<ThreadId, u64>,
}

impl<W: Write> RecordedWriter<W> {
    /// Starts a recording.
    pub fn new(mut writer: W, recording: &Recording) -> io::Result<RecordedWriter<W>> {
        let instructions = (recording.level == SourceDetail::Instructions).then(InstructionEncoder::default);
        let flags = if instructions.is_some() { HAS_INSTRUCTIONS_FLAG } else { 0 }
            | if recording.knows_return_addresses { 0 } else { LACKS_RETURN_ADDRESSES_FLAG }
            | if recording.knows_frames { HAS_FRAMES_FLAG } else { 0 };
        writer.write_all(&FileHeader { flags, ..FileHeader::new(FileKind::BRANCHES, VERSION) }.to_bytes())?;
        write_chunk(&mut writer, ChunkKind::Origin, recording.origin.as_bytes())?;
        Ok(RecordedWriter {
            writer,
            numbers: HashMap::new(),
            definitions: (0, Vec::new()),
            runs: Vec::new(),
            events: 0,
            instructions,
            frames: HashMap::new(),
        })
    }

    /// Appends a batch.
    pub fn write(&mut self, batch: &EventBatch) -> io::Result<()> {
        if let Some(encoder) = &mut self.instructions {
            encoder.add(&batch.events, &batch.instructions);
        }
        for (thread, event) in &batch.events {
            let next = self.numbers.len() as u64;
            let event = self.make_frame_address_relative(*thread, *event);
            let number = *self.numbers.entry(event).or_insert(next);
            if number == next {
                self.definitions.0 += 1;
                define(&event, &mut self.definitions.1);
            }
            match self.runs.last_mut() {
                Some((of, run)) if of == thread => run.push(number),
                _ => self.runs.push((*thread, vec![number])),
            }
            self.events += 1;
        }
        let most = if self.instructions.is_some() { MAX_CHUNK_EVENTS_WITH_INSTRUCTIONS } else { MAX_CHUNK_EVENTS };
        if self.events >= most { self.write_events() } else { Ok(()) }
    }

    /// Completes the recording and returns the writer.
    pub fn finish(mut self, notes: &SourceNotes) -> io::Result<W> {
        self.write_events()?;
        let mut content = Vec::new();
        push_number(notes.instructions, &mut content);
        push_number(notes.notes.len() as u64, &mut content);
        notes.notes.iter().for_each(|note| push_text(note, &mut content));
        push_number(notes.mappings.len() as u64, &mut content);
        for mapping in &notes.mappings {
            [mapping.start, mapping.length, mapping.offset].iter().for_each(|n| push_number(*n, &mut content));
            push_text(&mapping.path, &mut content);
        }
        write_chunk(&mut self.writer, ChunkKind::Notes, &content)?;
        write_chunk(&mut self.writer, ChunkKind::End, &[])?;
        self.writer.flush()?;
        Ok(self.writer)
    }

    /// Replaces the stack address of an event by its difference from the thread's previous one.
    fn make_frame_address_relative(&mut self, thread: ThreadId, event: StreamEvent) -> StreamEvent {
        let StreamEvent::Branch(branch) = event else { return event };
        let Some(at) = branch.stack else { return event };
        let before = self.frames.insert(thread, at.0).unwrap_or(0);
        StreamEvent::Branch(RetiredBranch { stack: Some(Address(at.0.wrapping_sub(before))), ..branch })
    }

    fn write_events(&mut self) -> io::Result<()> {
        if self.events == 0 {
            return Ok(());
        }
        if let Some(encoder) = &mut self.instructions {
            write_chunk(&mut self.writer, ChunkKind::Instructions, &encoder.take_encoded_content())?;
        }
        let mut content = Vec::new();
        push_number(self.definitions.0, &mut content);
        content.append(&mut self.definitions.1);
        for (thread, run) in self.runs.drain(..) {
            push_number(u64::from(thread.0), &mut content);
            push_number(run.len() as u64, &mut content);
            run.iter().for_each(|number| push_number(*number, &mut content));
        }
        self.definitions.0 = 0;
        self.events = 0;
        write_chunk(&mut self.writer, ChunkKind::Events, &content)
    }
}

fn write_chunk(writer: &mut impl Write, kind: ChunkKind, content: &[u8]) -> io::Result<()> {
    writer.write_all(&Section { tag: kind as u32, ..Section::default() }.to_bytes(content, COMPRESSION_LEVEL))
}

/// Tags of events other than branches. A branch's tag is its kind's number, with bit 3 if it was taken and bit 5 if its frame is known.
pub(super) mod tag {
    pub const BEGIN: u8 = 16;
    pub const INTERRUPT: u8 = 17;
    pub const RESUME: u8 = 18;
    pub const GAP: u8 = 19;
    pub const END: u8 = 20;
    pub const TAKEN: u8 = 8;
    pub const FRAME: u8 = 32;
}

fn define(event: &StreamEvent, into: &mut Vec<u8>) {
    let (tag, number) = match event {
        StreamEvent::Branch(branch) => return define_branch(branch, into),
        StreamEvent::Begin(at) => (tag::BEGIN, at.0),
        StreamEvent::Interrupt(at) => (tag::INTERRUPT, at.0),
        StreamEvent::Resume(at) => (tag::RESUME, at.0),
        StreamEvent::Gap(at) => (tag::GAP, at.0),
        StreamEvent::End(instructions) => (tag::END, u64::from(*instructions)),
    };
    into.push(tag);
    push_number(number, into);
}

fn define_branch(branch: &RetiredBranch, into: &mut Vec<u8>) {
    let kind = BranchKind::ALL.iter().position(|k| *k == branch.kind).unwrap_or(0) as u8;
    let frame = if branch.stack.is_some() { tag::FRAME } else { 0 };
    into.push(kind | if branch.is_taken { tag::TAKEN } else { 0 } | frame);
    push_number(branch.address.0, into);
    push_number(zigzag_encode(branch.target.0.wrapping_sub(branch.address.0)), into);
    push_number(zigzag_encode(branch.fall_through.0.wrapping_sub(branch.address.0)), into);
    push_number(u64::from(branch.instructions), into);
    branch.stack.into_iter().for_each(|difference| push_number(zigzag_encode(difference.0), into));
}

fn push_text(text: &str, into: &mut Vec<u8>) {
    push_number(text.len() as u64, into);
    into.extend(text.as_bytes());
}
