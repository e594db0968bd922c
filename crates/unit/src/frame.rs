//! Unit frames: a compilation unit's map and bitcode, as stored in object files and in the unit cache.
//!
//! A frame is a [container](trodden_container) file with one or two sections, padded with zeros to a multiple of 8 bytes. The subject of
//! both sections is the unit. The count in the first section's header is the number of sections that follow. Linkers concatenate the frames
//! of a program, possibly with zero bytes between them.

use crate::identity::Identity;
use crate::map::{MAP_VERSION, UnitMap};
use trodden_container::{
    FILE_HEADER_BYTES, FileError, FileHeader, FileKind, HeaderError, MAGIC, SECTION_HEADER_BYTES, Section, SectionError, SectionHeader,
    encode, expect_header,
};

const MAP_TAG: u32 = 1;
/// Tag of the section with the bitcode, which is missing if the bitcode was not stored.
const BITCODE_TAG: u32 = 2;
const COMPRESSION_LEVEL: i32 = 3;

/// The map and the bitcode of a unit, both compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Identity of the unit.
    pub unit: Identity,
    map: Vec<u8>,
    /// Empty if the bitcode was not stored.
    bitcode: Vec<u8>,
}

/// Reason why bytes are not a readable frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum FrameError {
    #[error("the section that lists compilation units is corrupt at byte {0}, or was not written by trodden. Rebuild the program")]
    Magic(usize),
    #[error(
        "the compilation unit at byte {at} was built by a different version of trodden (format {found}; this version reads format \
         {MAP_VERSION}). Rebuild the program"
    )]
    Version {
        /// Offset of the unit's frame in the section.
        at: usize,
        found: u32,
    },
    /// The frame was written by an early version of trodden, whose files have a different header.
    #[error("the compilation unit at byte {0} was built by an earlier version of trodden. Rebuild the program")]
    Earlier(usize),
    #[error("the compilation unit at byte {at} is corrupt: {error}")]
    Section { at: usize, error: SectionError },
    #[error("compilation unit {0} is truncated")]
    Truncated(Identity),
    #[error("compilation unit {0} is corrupt: its checksum does not match")]
    Checksum(Identity),
    #[error("compilation unit {unit} cannot be read: {what}")]
    Payload { unit: Identity, what: String },
    #[error("compilation unit {0} has no LLVM bitcode, from which variants are built. Rebuild the program without the setting `keep=map`")]
    NoBitcode(Identity),
}

impl Frame {
    /// Creates a frame. If `bitcode` is empty, the frame has no bitcode.
    pub fn compress(unit: Identity, map: &UnitMap, bitcode: &[u8]) -> Frame {
        let section = |tag, count, content: &[u8]| {
            Section { tag, layout: MAP_VERSION, subject: unit.0, count, index: &[] }.to_bytes(content, COMPRESSION_LEVEL)
        };
        let has_bitcode = !bitcode.is_empty();
        Frame {
            unit,
            map: section(MAP_TAG, has_bitcode.into(), &encode(map)),
            bitcode: if has_bitcode { section(BITCODE_TAG, 0, bitcode) } else { Vec::new() },
        }
    }

    pub(crate) fn has_same_packed_map(&self, other: &Frame) -> bool {
        // The section headers are not compared, because they also say whether bitcode follows.
        self.map[SECTION_HEADER_BYTES..] == other.map[SECTION_HEADER_BYTES..]
    }

    /// Encodes the frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = [&FileHeader::new(FileKind::UNIT, MAP_VERSION).to_bytes()[..], &self.map, &self.bitcode].concat();
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    /// Reads the frame at offset `at`. Also returns the offset at which the frame ends. Verifies the checksum of the map;
    /// [`Frame::bitcode`] verifies that of the bitcode. Fails if there is no frame at this offset, or if the frame is of a different
    /// version or corrupt.
    pub fn read(bytes: &[u8], at: usize) -> Result<(Frame, usize), FrameError> {
        let rest = bytes.get(at..).unwrap_or_default();
        match expect_header(rest, FileKind::UNIT, MAP_VERSION) {
            Ok(_) => {}
            Err(FileError::Version { found, .. }) => return Err(FrameError::Version { at, found }),
            Err(FileError::Header(HeaderError::EarlierFormat)) => return Err(FrameError::Earlier(at)),
            Err(_) => return Err(FrameError::Magic(at)),
        }
        let (map_header, map) = read_section(&rest[FILE_HEADER_BYTES..], MAP_TAG).map_err(|error| FrameError::Section { at, error })?;
        let unit = Identity(map_header.subject);
        if map_header.check(&map[SECTION_HEADER_BYTES..]).is_err() {
            return Err(FrameError::Checksum(unit));
        }
        let mut end = FILE_HEADER_BYTES + map.len();
        let bitcode = match map_header.count {
            0 => Vec::new(),
            _ => read_section(&rest[end..], BITCODE_TAG).map_err(|_| FrameError::Truncated(unit))?.1.to_vec(),
        };
        end += bitcode.len();
        Ok((Frame { unit, map: map.to_vec(), bitcode }, (at + end.next_multiple_of(8)).min(bytes.len())))
    }

    /// Reads all frames of a section of an object file or program. Returns the frames that can be read, and the errors of the others.
    pub fn read_all(bytes: &[u8]) -> (Vec<Frame>, Vec<FrameError>) {
        let (mut frames, mut errors) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == 0 {
                at += 1;
                continue;
            }
            match Frame::read(bytes, at) {
                Ok((frame, end)) => {
                    frames.push(frame);
                    at = end;
                }
                Err(error) => {
                    errors.push(error);
                    let next = bytes[at + 1..].windows(8).position(|w| w == MAGIC);
                    at = next.map_or(bytes.len(), |n| at + 1 + n);
                }
            }
        }
        (frames, errors)
    }

    /// Decodes the map. Fails if the map is corrupt.
    pub fn map(&self) -> Result<UnitMap, FrameError> {
        SectionHeader::read(&self.map)
            .and_then(|header| header.value(&self.map[SECTION_HEADER_BYTES..]))
            .map_err(|e| self.section_error(&e))
    }

    /// Decompresses the bitcode. Fails if the bitcode was not stored, or is corrupt.
    pub fn bitcode(&self) -> Result<Vec<u8>, FrameError> {
        if self.bitcode.is_empty() {
            return Err(FrameError::NoBitcode(self.unit));
        }
        SectionHeader::read(&self.bitcode)
            .and_then(|header| header.unpack(&self.bitcode[SECTION_HEADER_BYTES..]))
            .map_err(|e| self.section_error(&e))
    }

    fn section_error(&self, error: &SectionError) -> FrameError {
        FrameError::Payload { unit: self.unit, what: error.to_string() }
    }

    /// Returns whether the frame contains bitcode.
    pub fn has_bitcode(&self) -> bool {
        !self.bitcode.is_empty()
    }
}

/// Returns the header and all bytes of the section at the start of `bytes`. Fails if the section has a different tag.
fn read_section(bytes: &[u8], tag: u32) -> Result<(SectionHeader, &[u8]), SectionError> {
    let header = SectionHeader::read(bytes)?;
    if header.tag != tag || header.index_length() != 0 {
        return Err(SectionError::UnexpectedForm("a section of a different kind".to_owned()));
    }
    let whole = usize::try_from(header.length()).ok().and_then(|length| bytes.get(..length));
    Ok((header, whole.ok_or(SectionError::Truncated)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use crate::map::CountedEvent;

    fn sample_map() -> UnitMap {
        UnitMap {
            source: "a.c".into(),
            producer: String::new(),
            llvm: 22,
            target: String::new(),
            experiment: Experiment::default(),
            counted: CountedEvent::Paths,
            codegen: vec![],
            files: vec![],
            scopes: vec![],
            functions: vec![],
            skipped: vec![],
            fully_counted: vec![],
            counters: 0,
            edge_profile: None,
            calls: vec![],
            aliases: vec![],
            line_graphs: Default::default(),
        }
    }

    #[test]
    fn consecutive_frames_survive_encoding() {
        let one = Frame::compress(Identity([1; 16]), &sample_map(), b"BC");
        let two = Frame::compress(Identity([2; 16]), &sample_map(), b"");
        let mut bytes = one.to_bytes();
        bytes.extend([0; 24]);
        bytes.extend(two.to_bytes());
        let (frames, errors) = Frame::read_all(&bytes);
        assert_eq!(frames, [one.clone(), two.clone()]);
        assert!(errors.is_empty());
        assert_eq!(frames[0].map().unwrap(), sample_map());
        assert_eq!(frames[0].bitcode().unwrap(), b"BC");
        assert_eq!(frames[1].bitcode(), Err(FrameError::NoBitcode(Identity([2; 16]))));
    }

    #[test]
    fn error_for_a_different_version_says_to_rebuild() {
        let mut bytes = Frame::compress(Identity([1; 16]), &sample_map(), b"BC").to_bytes();
        bytes[..FILE_HEADER_BYTES].copy_from_slice(&FileHeader::new(FileKind::UNIT, MAP_VERSION - 1).to_bytes());
        for (bytes, found) in [(&bytes[..], "format"), (b"TRODUNIT and more", "earlier version")] {
            let message = Frame::read_all(bytes).1[0].to_string();
            assert!(message.contains(found) && message.contains("Rebuild the program"), "{message}");
        }
    }

    #[test]
    fn corrupt_frame_is_reported_and_the_next_frame_is_read() {
        let mut bytes = Frame::compress(Identity([1; 16]), &sample_map(), b"BC").to_bytes();
        bytes[FILE_HEADER_BYTES + SECTION_HEADER_BYTES + 1] ^= 1;
        bytes.extend(Frame::compress(Identity([2; 16]), &sample_map(), b"").to_bytes());
        let (frames, errors) = Frame::read_all(&bytes);
        assert_eq!(frames.len(), 1);
        assert_eq!(errors, [FrameError::Checksum(Identity([1; 16]))]);
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let whole = Frame::compress(Identity([1; 16]), &sample_map(), b"bitcode");
        let bytes = whole.to_bytes();
        let end = FILE_HEADER_BYTES + whole.map.len() + whole.bitcode.len();
        for at in 0..end {
            let mut changed = bytes.clone();
            changed[at] ^= 0x11;
            let read = Frame::read(&changed, 0).and_then(|(frame, _)| Ok((frame.map()?, frame.bitcode()?)));
            assert!(read.is_err(), "byte {at}");
        }
    }
}
