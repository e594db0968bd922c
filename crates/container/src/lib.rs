//! The container of all files that trodden writes as a whole: profiles, traces, maps of units, sets and requests.
//!
//! A file is a [head](FileHead), which says what it is, and a sequence of [sections](Section), each of which is compressed by itself and
//! has checksums of its head, its index and its content. A reader that skips a section does not read it, and damage affects only the
//! section that it hits: readers search for the next [`MARKER`]. Files that live programs write share the head alone.

#![forbid(unsafe_code)]

mod file;
mod section;

pub use file::{FileError, FileFormat, WrongContent, expect_head};
pub use section::{MARKER, SECTION_HEAD, Section, SectionError, SectionHead, decode, encode, find_marker, max_unpacked};
pub use trodden_wire::head::{FileHead, FileKind, HEAD_BYTES, HeadError, MAGIC};
