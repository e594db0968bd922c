//! The container of all files that trodden writes in one go: profiles, traces, maps of units, sets and requests.
//!
//! A file is a [head](FileHead), which identifies its kind, and a sequence of [sections](Section), which are compressed separately and
//! have checksums of their head, index and content. Readers can skip a section without reading it, and damage only affects the section
//! that it hits, because readers search for the next [`MARKER`]. Files that programs write while they run only share the head.

#![forbid(unsafe_code)]

mod file;
mod section;

pub use file::{ContentError, FileError, FileFormat, expect_head};
pub use section::{MARKER, SECTION_HEAD, Section, SectionError, SectionHead, decode, encode, find_marker, max_unpacked};
pub use trodden_wire::head::{FileHead, FileKind, HEAD_BYTES, HeadError, MAGIC};
