//! Reads the compact format of recorded branches, whose layout is described in `recorded_writer.rs`.

use super::recorded_instructions::InstructionDecoder;
use super::recorded_writer::{ChunkKind, HAS_FRAMES_FLAG, HAS_INSTRUCTIONS_FLAG, LACKS_RETURN_ADDRESSES_FLAG, VERSION, tag};
use super::{BranchSource, EventBatch, SourceBytes, SourceDetail, SourceError, SourceNotes};
use crate::numbers::Cursor;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use trodden_binary::MappedFile;
use trodden_container::{FILE_HEADER_BYTES, FileError, FileKind, HeaderError, SECTION_HEADER_BYTES, SectionHeader, expect_header};
use trodden_hardware::{Address, BranchKind, RetiredBranch, StreamEvent, ThreadId};

/// Maximum size of a chunk in bytes.
const MAX_CHUNK_SIZE: u64 = 1 << 28;

/// Reads a recording as a source of branches.
pub struct RecordedSource<R> {
    bytes: SourceBytes<R>,
    /// The recorded command or file.
    pub origin: String,
    events: Vec<StreamEvent>,
    notes: SourceNotes,
    is_ended: bool,
    flags: u64,
    instructions: InstructionDecoder,
    /// For each thread, the stack address of the return address at its last call or return.
    frames: HashMap<ThreadId, u64>,
}

impl<R: Read> RecordedSource<R> {
    /// Reads the start of a recording. `path` identifies it in messages.
    ///
    /// # Errors
    /// The file cannot be read, is not a recording, or has a different version.
    pub fn new(reader: R, path: &Path) -> Result<RecordedSource<R>, SourceError> {
        let mut bytes = SourceBytes::new(reader, path);
        let mut header = [0; FILE_HEADER_BYTES];
        bytes.read_exact(&mut header, "the start of a recording")?;
        let flags = match expect_header(&header, FileKind::BRANCHES, VERSION) {
            Ok(header) => header.flags,
            Err(FileError::Version { found, .. }) => {
                return Err(bytes.foreign_format_error(format!(
                    "the recording has version {found}, but this program reads version {VERSION}. Record again"
                )));
            }
            Err(FileError::Header(error @ HeaderError::EarlierFormat)) => {
                return Err(bytes.foreign_format_error(format!("{error}. Record again")));
            }
            Err(FileError::Header(error @ HeaderError::Checksum)) => return Err(bytes.corrupt(0, error.to_string())),
            Err(error) => return Err(bytes.foreign_format_error(format!("not a recording of `trodden simulate --record`: {error}"))),
        };
        if flags & !(HAS_INSTRUCTIONS_FLAG | LACKS_RETURN_ADDRESSES_FLAG | HAS_FRAMES_FLAG) != 0 {
            return Err(bytes.foreign_format_error(format!("the recording has unknown flags {flags:#x}. Record again")));
        }
        let mut source = RecordedSource {
            bytes,
            origin: String::new(),
            events: Vec::new(),
            notes: SourceNotes::default(),
            is_ended: false,
            flags,
            instructions: InstructionDecoder::default(),
            frames: HashMap::new(),
        };
        match source.read_chunk()? {
            Some((_, ChunkKind::Origin, origin)) => source.origin = String::from_utf8_lossy(&origin).into_owned(),
            Some((offset, ..)) => return Err(source.bytes.corrupt(offset, "it does not start with its origin")),
            None => return Err(source.bytes.truncated_file_error("its origin is missing")),
        }
        Ok(source)
    }

    /// Reads a chunk: its offset, kind and contents; `None` at the end of the file.
    fn read_chunk(&mut self) -> Result<Option<(u64, ChunkKind, Vec<u8>)>, SourceError> {
        let offset = self.bytes.offset();
        let mut header = [0; SECTION_HEADER_BYTES];
        if !self.bytes.fill(&mut header, "a chunk's header")? {
            return Ok(None);
        }
        let header = SectionHeader::read(&header).map_err(|error| self.bytes.corrupt(offset, format!("a chunk: {error}")))?;
        let kind = match header.tag {
            1 => ChunkKind::Origin,
            2 => ChunkKind::Events,
            3 => ChunkKind::Notes,
            4 => ChunkKind::End,
            5 => ChunkKind::Instructions,
            other => return Err(self.bytes.corrupt(offset, format!("a chunk has the unknown kind {other}"))),
        };
        let (packed, size) = (header.packed_length(), header.unpacked_length());
        if packed.max(size) > MAX_CHUNK_SIZE || header.index_length() > 0 {
            return Err(self.bytes.corrupt(offset, format!("a chunk is too large ({packed} bytes, {size} unpacked)")));
        }
        let mut content = vec![0; packed as usize];
        self.bytes.read_exact(&mut content, "a chunk's content")?;
        let content = header.unpack(&content).map_err(|error| self.bytes.corrupt(offset, format!("a chunk: {error}")))?;
        Ok(Some((offset, kind, content)))
    }

    /// Decodes the events of a chunk. Events before an error remain valid.
    fn decode_event_chunk(&mut self, content: &[u8], batch: &mut EventBatch) -> Option<()> {
        let mut at = Cursor(content);
        for _ in 0..at.number()? {
            let event = event(&mut at)?;
            self.events.push(event);
        }
        while !at.0.is_empty() {
            let thread = ThreadId(u32::try_from(at.number()?).ok()?);
            let before = self.frames.entry(thread).or_insert(0);
            for _ in 0..at.number()? {
                let number = usize::try_from(at.number()?).ok()?;
                let mut event = *self.events.get(number)?;
                if let StreamEvent::Branch(RetiredBranch { stack: Some(place), .. }) = &mut event {
                    *before = before.wrapping_add(place.0);
                    *place = Address(*before);
                }
                batch.events.push((thread, event));
            }
        }
        Some(())
    }

    fn decode_notes_chunk(&mut self, content: &[u8]) -> Option<()> {
        let mut at = Cursor(content);
        self.notes.instructions = at.number()?;
        for _ in 0..at.number()? {
            let note = at.text()?;
            self.notes.notes.push(note);
        }
        for _ in 0..at.number()? {
            let [start, length, offset] = [at.number()?, at.number()?, at.number()?];
            let path = at.text()?;
            self.notes.mappings.push(MappedFile { process: 0, start, length, offset, build_id: None, path });
        }
        Some(())
    }
}

impl<R: Read> BranchSource for RecordedSource<R> {
    fn level(&self) -> SourceDetail {
        if self.flags & HAS_INSTRUCTIONS_FLAG == 0 { SourceDetail::Branches } else { SourceDetail::Instructions }
    }

    fn knows_return_addresses(&self) -> bool {
        self.flags & LACKS_RETURN_ADDRESSES_FLAG == 0
    }

    fn knows_frames(&self) -> bool {
        self.flags & HAS_FRAMES_FLAG != 0
    }

    fn read(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        if self.is_ended {
            return Ok(false);
        }
        let Some((offset, kind, content)) = self.read_chunk()? else {
            return Err(self.bytes.truncated_file_error("the end of the recording is missing"));
        };
        let taken = match kind {
            ChunkKind::Origin => Some(()),
            ChunkKind::Events => self.decode_event_chunk(&content, batch),
            ChunkKind::Instructions => self.instructions.take(&content, &mut batch.instructions),
            ChunkKind::Notes => self.decode_notes_chunk(&content),
            ChunkKind::End => {
                self.is_ended = true;
                Some(())
            }
        };
        taken.ok_or_else(|| self.bytes.corrupt(offset, "a chunk is malformed"))?;
        Ok(!self.is_ended)
    }

    fn notes(&self) -> SourceNotes {
        self.notes.clone()
    }
}

fn event(at: &mut Cursor) -> Option<StreamEvent> {
    let tag = at.byte()?;
    Some(match tag {
        tag::BEGIN => StreamEvent::Begin(Address(at.number()?)),
        tag::INTERRUPT => StreamEvent::Interrupt(Address(at.number()?)),
        tag::RESUME => StreamEvent::Resume(Address(at.number()?)),
        tag::GAP => StreamEvent::Gap(Address(at.number()?)),
        tag::END => StreamEvent::End(u32::try_from(at.number()?).ok()?),
        _ => {
            let kind = *BranchKind::ALL.get(usize::from(tag & !(tag::TAKEN | tag::FRAME)))?;
            let address = at.number()?;
            let target = Address(address.wrapping_add(at.difference()?));
            let fall_through = Address(address.wrapping_add(at.difference()?));
            let instructions = u32::try_from(at.number()?).ok()?;
            let is_taken = tag & tag::TAKEN != 0;
            let stack = if tag & tag::FRAME == 0 { None } else { Some(Address(at.difference()?)) };
            StreamEvent::Branch(RetiredBranch { address: Address(address), target, fall_through, kind, is_taken, instructions, stack })
        }
    })
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;
