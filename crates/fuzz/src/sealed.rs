//! Corrects the checksums in mutated files, because readers reject a file with a wrong checksum at once.
//!
//! The files are containers (files of compressed sections), raw files or stream files. In the corpus, the sections of a container are
//! uncompressed and have arbitrary checksums, so that mutations change their content. They are compressed here.

use trodden_container::{FILE_HEADER_BYTES, FileHeader, FileKind, SECTION_HEADER_BYTES, SECTION_MARKER, Section, find_marker};
use trodden_wire::RawHeader;
use trodden_wire::layout::Layout;

const COMPRESSION_LEVEL: i32 = 1;

/// Returns a valid container file with the kind and version of the input file and all of its sections.
pub fn seal_container(input: &[u8]) -> Vec<u8> {
    let mut header = [0; FILE_HEADER_BYTES];
    let (present, mut rest) = input.split_at(input.len().min(FILE_HEADER_BYTES));
    header[..present.len()].copy_from_slice(present);
    let kind = FileKind(*header[8..].first_chunk().expect("four bytes"));
    let version = u32::from_le_bytes(*header[12..].first_chunk().expect("four bytes"));
    let mut file = FileHeader::new(kind, version).to_bytes().to_vec();
    while let Some(at) = find_marker(rest) {
        let section = &rest[at..];
        let end = find_marker(&section[SECTION_MARKER.len()..]).map_or(section.len(), |next| SECTION_MARKER.len() + next);
        file.extend(seal_section(&section[..end]));
        rest = &section[end..];
    }
    file
}

/// Returns the input as a raw file or stream file with a valid checksum.
pub fn seal_raw(input: &[u8], kind: FileKind, version: u32) -> Vec<u8> {
    let mut file = input.to_vec();
    if let Some(header) = RawHeader::read(input) {
        let checksum = RawHeader::checksum_of(input).unwrap_or(header.checksum);
        RawHeader { file_header: FileHeader::new(kind, version).to_bytes(), checksum, ..header }
            .write(&mut file)
            .expect("it was read from there");
    }
    file
}

/// Returns a section in compressed form, with correct sizes and checksums. The argument consists of the section's header, its index and its
/// uncompressed content.
fn seal_section(section: &[u8]) -> Vec<u8> {
    let mut header = [0; SECTION_HEADER_BYTES];
    let (present, body) = section.split_at(section.len().min(SECTION_HEADER_BYTES));
    header[..present.len()].copy_from_slice(present);
    let half = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("four bytes"));
    let (index, content) = body.split_at(body.len().min(half(36) as usize));
    let subject = *header[16..].first_chunk().expect("sixteen bytes");
    Section { tag: half(8), layout: half(12), subject, count: half(32), index }.to_bytes(content, COMPRESSION_LEVEL)
}
