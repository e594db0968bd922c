//! Sources of retired branches for the model of the hardware path profiler, behind one trait.
//!
//! | file | source | level |
//! |---|---|---|
//! | `qemu.rs`, `qemu_blocks.rs` | an unmodified program under QEMU's user mode, with a plugin | branches; memory accesses |
//! | `bt9.rs`, `bt9_opcode.rs` | text traces of CBP-5 | branches |
//! | `cbp2025.rs` | traces of CBP2025 | instructions |
//! | `champsim.rs` | traces of ChampSim | instructions |
//! | `perf_script.rs` | output of `perf script`: branch stacks, or branches of Intel PT | branches |
//! | `x86.rs` | the properties of x86-64 instructions that the processor model needs | |
//! | `recorded.rs`, `recorded_writer.rs` | the compact format of `trodden simulate --record` | branches |
//! | `recorded_instructions.rs` | the same with `--event` | instructions |
//!
//! Sources are read in batches, so that several tables and configurations can be fed in one pass. Records of one thread are in program
//! order. A corrupt source fails with the offset of the corrupt data, and records that were read before it remain valid.

mod bt9;
mod bt9_opcode;
mod cbp2025;
mod champsim;
mod lines;
mod perf_script;
mod qemu;
mod qemu_blocks;
mod recorded;
mod recorded_instructions;
mod recorded_writer;
mod records;
mod x86;

pub use bt9::Bt9Source;
pub use cbp2025::Cbp2025Source;
pub use champsim::ChampSimSource;
pub use perf_script::PerfScriptSource;
pub use qemu::QemuSource;
pub use recorded::RecordedSource;
pub use recorded_writer::{RecordedWriter, Recording};

use crate::mappings::ProcessMapping;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use trodden_binary::MappedFile;
use trodden_hardware::{Instruction, StreamEvent, ThreadId};

/// How detailed a source's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceDetail {
    /// Branches, and the number of instructions between them.
    Branches,
    /// Every instruction, with its memory accesses.
    Instructions,
}

/// A batch of records.
#[derive(Clone, Debug, Default)]
pub struct EventBatch {
    /// The events of threads, in the source's order.
    pub events: Vec<(ThreadId, StreamEvent)>,
    /// For sources at the level of instructions: the executed instructions, in order. Each branch or end among `events` says how many of
    /// them belong to it; the last ones may belong to an event of the next batch.
    pub instructions: Vec<Instruction>,
}

impl EventBatch {
    /// Approximate number of events per batch. A source ends a batch at the first suitable event after it.
    pub const EVENTS_PER_BATCH: usize = 1 << 14;

    /// Removes all records.
    pub fn clear(&mut self) {
        self.events.clear();
        self.instructions.clear();
    }
}

/// Information on a source that has been read.
#[derive(Clone, Debug, Default)]
pub struct SourceNotes {
    /// Notes for the user on irregularities.
    pub notes: Vec<String>,
    /// The mapped files. Later mappings come last.
    pub mappings: Vec<MappedFile>,
    /// Number of executed instructions.
    pub instructions: u64,
    /// Number of iterations of string instructions after the first one. They do not count as instructions, and are known only for running
    /// programs.
    pub iterations: Option<u64>,
}

/// A source of retired branches.
pub trait BranchSource {
    /// Returns the level of detail of the records.
    fn level(&self) -> SourceDetail;

    /// Returns true if the records of calls have the return addresses.
    fn knows_return_addresses(&self) -> bool {
        true
    }

    /// Returns true if the records of calls and returns have the stack address of the return address.
    fn knows_frames(&self) -> bool {
        false
    }

    /// Adds records to an empty batch. Returns false if there are no more. After an error, the batch holds the records that precede it.
    ///
    /// # Errors
    /// The source cannot be read, or is corrupt.
    fn read(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError>;

    /// Returns information on the records that were read so far.
    fn notes(&self) -> SourceNotes;
}

/// The reason why a source could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Reading the file or pipe has failed.
    #[error("cannot read {path} at offset {offset}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Offset of the failure.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The source has a different format.
    #[error("{path}: {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The source is truncated.
    #[error("{path} is truncated at offset {offset}: {what}. To use the part before this offset, pass --partial")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Offset of the end.
        offset: u64,
        /// What is missing.
        what: String,
    },
    /// The contents are malformed.
    #[error("{path} is corrupt at offset {offset}: {what}. To use the intact part before this offset, pass --partial")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the corrupt data.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

/// A stream of bytes that keeps track of its offset.
pub(crate) struct SourceBytes<R> {
    reader: R,
    path: PathBuf,
    offset: u64,
}

impl<R: Read> SourceBytes<R> {
    pub fn new(reader: R, path: &Path) -> SourceBytes<R> {
        SourceBytes { reader, path: path.to_owned(), offset: 0 }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn truncated_file_error(&self, what: impl Into<String>) -> SourceError {
        SourceError::Truncated { path: self.path.clone(), offset: self.offset, what: what.into() }
    }

    pub fn corrupt(&self, offset: u64, what: impl Into<String>) -> SourceError {
        SourceError::Corrupt { path: self.path.clone(), offset, what: what.into() }
    }

    pub fn foreign_format_error(&self, what: impl Into<String>) -> SourceError {
        SourceError::Foreign { path: self.path.clone(), what: what.into() }
    }

    /// Fills the buffer. Returns false if the stream ended before the buffer's first byte.
    pub fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<bool, SourceError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => {
                    let offset = self.offset + filled as u64;
                    return Err(SourceError::Truncated { path: self.path.clone(), offset, what: format!("in {what}") });
                }
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(SourceError::Read { path: self.path.clone(), offset: self.offset, source }),
            }
        }
        self.offset += filled as u64;
        Ok(true)
    }

    /// Fills the buffer, and fails if the stream ends.
    pub fn read_exact(&mut self, buffer: &mut [u8], what: &str) -> Result<(), SourceError> {
        if buffer.is_empty() || self.fill(buffer, what)? {
            return Ok(());
        }
        Err(self.truncated_file_error(format!("{what} is missing")))
    }
}

/// Parses the text of `/proc/PID/maps`. `base` is the offset of the program's addresses in the process.
pub(crate) fn parse_maps(text: &str, base: u64) -> Vec<MappedFile> {
    let file = |line: &str| {
        let ProcessMapping { start, end, offset, name: path, .. } = ProcessMapping::parse(line).filter(ProcessMapping::is_file)?;
        Some(MappedFile { process: 0, start: start.wrapping_sub(base), length: end - start, offset, build_id: None, path })
    };
    text.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_with_spaces_in_names_are_parsed() {
        let text = "10001000-10003000 r-xp 00001000 fe:00 12 /usr/bin/my prog\n7f00-7f10 rw-p 00000000 00:00 0 \n7ffe00-7fff00 rw-p 0 \
            00:00 0 [stack]\n";
        let expected =
            MappedFile { process: 0, start: 0x1000, length: 0x2000, offset: 0x1000, build_id: None, path: "/usr/bin/my prog".into() };
        assert_eq!(parse_maps(text, 0x1000_0000), [expected]);
    }

    #[test]
    fn end_and_truncation_are_distinguished() {
        let mut bytes = SourceBytes::new(&b"abcd"[..], Path::new("f"));
        let mut two = [0; 3];
        assert!(bytes.fill(&mut two, "x").unwrap());
        let error = bytes.fill(&mut two, "a number").unwrap_err().to_string();
        assert!(error.contains("f is truncated at offset 4: in a number"), "{error}");
        assert!(!SourceBytes::new(&b""[..], Path::new("f")).fill(&mut two, "x").unwrap());
    }
}
