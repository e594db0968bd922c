//! The container of all files that trodden writes at once: profiles, traces, maps of units, sets and requests.
//!
//! A file is a [head](FileHead), which identifies its kind, and a sequence of [sections](Section), which are compressed separately and
//! have checksums of their head, index and content. Readers can skip a section without reading it. A corrupt section does not affect the
//! others, because readers search for the next [`MARKER`]. Files that programs write while they run have only the head in common with it.

#![forbid(unsafe_code)]

mod file;
mod section;

pub use file::{ContentError, FileError, FileFormat, expect_head};
pub use section::{MARKER, SECTION_HEAD, Section, SectionError, SectionHead, decode, encode, find_marker, max_unpacked};
pub use trodden_wire::head::{FileHead, FileKind, HEAD_BYTES, HeadError, MAGIC};
