//! The container format of all files that trodden writes outside of running programs: profiles, traces, unit maps, sets and requests.
//!
//! A file is a [header](FileHeader), which identifies its kind, and a sequence of [sections](Section). Each section is compressed
//! separately, and has checksums of its header, index and content, so readers can skip a section without reading it. A corrupt section
//! does not affect the others, because readers search for the next [`SECTION_MARKER`]. Files that programs write while they run start with
//! the same header, but have no sections.

#![forbid(unsafe_code)]

mod file;
mod section;

pub use file::{ContentError, FileError, FileFormat, expect_header};
pub use section::{
    SECTION_HEADER_BYTES, SECTION_MARKER, Section, SectionError, SectionHeader, decode, encode, find_marker, max_unpacked_size,
};
pub use trodden_wire::file_header::{FILE_HEADER_BYTES, FileHeader, FileKind, HeaderError, MAGIC};
