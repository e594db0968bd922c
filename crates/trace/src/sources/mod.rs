//! Sources of retired branches for the model of the hardware path profiler, behind one trait.
//!
//! | file | source | what it holds |
//! |---|---|---|
//! | `qemu.rs`, `qemu_blocks.rs` | an unmodified program under QEMU's user mode, with a plugin | branches; memory accesses |
//! | `bt9.rs`, `bt9_opcode.rs` | text traces of CBP-5 | branches |
//! | `cbp2025.rs` | traces of CBP2025 | instructions |
//! | `champsim.rs` | traces of ChampSim | instructions |
//! | `perf_script.rs` | text of `perf script`: branch stacks, or branches of Intel PT | branches |
//! | `x86.rs` | | what the processor model needs of x86-64 instructions |
//! | `recorded.rs`, `recorded_writer.rs` | the compact format of `trodden simulate --record` | branches |
//! | `recorded_instructions.rs` | the same with `--event` | instructions |
//!
//! A source gives batches, so that several tables and configurations can be fed from one reading. Each record names its
//! thread; records of one thread are in program order. A damaged source fails with the offset of the damage, and what
//! came before it stands.

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

use crate::memory::ProcessMapping;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use trodden_binary::MappedFile;
use trodden_hardware::{Instruction, StreamEvent, ThreadId};

/// What a source knows of each instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Branches, and how many instructions are between them.
    Branches,
    /// Every instruction, with the memory it accesses.
    Instructions,
}

/// Records of a source.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// What threads did, in the source's order.
    pub events: Vec<(ThreadId, StreamEvent)>,
    /// Of sources at the level of instructions: those that the branches and ends among `events` count, in their order,
    /// and what is behind the last of them.
    pub instructions: Vec<Instruction>,
}

impl Batch {
    /// Records of a batch, about: sources stop at the first place behind it where they can.
    pub const EVENTS: usize = 1 << 14;

    /// Empties it.
    pub fn clear(&mut self) {
        self.events.clear();
        self.instructions.clear();
    }
}

/// What a source can say about itself when it has been read.
#[derive(Clone, Debug, Default)]
pub struct SourceNotes {
    /// What is not as one would expect, for the user to read.
    pub notes: Vec<String>,
    /// Which files were mapped where. Later mappings come last.
    pub mappings: Vec<MappedFile>,
    /// Instructions that were executed.
    pub instructions: u64,
    /// Further iterations of string instructions, which count as no instructions; known while a program runs.
    pub iterations: Option<u64>,
}

/// A source of retired branches.
pub trait BranchSource {
    /// What it knows.
    fn level(&self) -> Level;

    /// Whether a call says where it returns to.
    fn knows_return_addresses(&self) -> bool {
        true
    }

    /// Whether calls and returns say where on the stack their return address lies.
    fn knows_frames(&self) -> bool {
        false
    }

    /// Adds records to an empty batch; `false` if there are no more. After an error the batch holds what came before it.
    ///
    /// # Errors
    /// The source cannot be read, or is damaged; the message names the place.
    fn read(&mut self, batch: &mut Batch) -> Result<bool, SourceError>;

    /// What there is to say about what was read so far.
    fn notes(&self) -> SourceNotes;
}

/// Why a source cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file or pipe fails.
    #[error("{path}: cannot read at offset {offset}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Why not.
        source: io::Error,
    },
    /// It is of another format.
    #[error("{path}: {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        what: String,
    },
    /// It ends early.
    #[error("{path}: cut off at offset {offset}: {what}; --partial keeps what was read before")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where it ends.
        offset: u64,
        /// What should be there.
        what: String,
    },
    /// Its content makes no sense.
    #[error("{path}: damaged at offset {offset}: {what}; --partial keeps what was read before")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

/// A stream of bytes that knows its name and where it is.
pub(crate) struct Bytes<R> {
    reader: R,
    path: PathBuf,
    offset: u64,
}

impl<R: Read> Bytes<R> {
    pub fn new(reader: R, path: &Path) -> Bytes<R> {
        Bytes { reader, path: path.to_owned(), offset: 0 }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn truncated(&self, what: impl Into<String>) -> SourceError {
        SourceError::Truncated { path: self.path.clone(), offset: self.offset, what: what.into() }
    }

    pub fn damaged(&self, offset: u64, what: impl Into<String>) -> SourceError {
        SourceError::Damaged { path: self.path.clone(), offset, what: what.into() }
    }

    pub fn foreign(&self, what: impl Into<String>) -> SourceError {
        SourceError::Foreign { path: self.path.clone(), what: what.into() }
    }

    /// Fills the buffer; `false` if the stream ended just before it.
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

    /// Fills the buffer, which must be there.
    pub fn exactly(&mut self, buffer: &mut [u8], what: &str) -> Result<(), SourceError> {
        if buffer.is_empty() || self.fill(buffer, what)? {
            return Ok(());
        }
        Err(self.truncated(format!("{what} is missing")))
    }
}

/// Reads the text of `/proc/PID/maps`; `base` is what the process adds to the program's addresses.
pub(crate) fn parse_maps(text: &str, base: u64) -> Vec<MappedFile> {
    let file = |line: &str| {
        let ProcessMapping { start, end, offset, name: path, .. } = ProcessMapping::parse(line).filter(|m| m.name.starts_with('/'))?;
        Some(MappedFile { process: 0, start: start.wrapping_sub(base), length: end - start, offset, build_id: None, path })
    };
    text.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_with_blanks_in_names() {
        let text = "10001000-10003000 r-xp 00001000 fe:00 12 /usr/bin/my prog\n7f00-7f10 rw-p 00000000 00:00 0 \n7ffe00-7fff00 rw-p 0 \
            00:00 0 [stack]\n";
        let expected =
            MappedFile { process: 0, start: 0x1000, length: 0x2000, offset: 0x1000, build_id: None, path: "/usr/bin/my prog".into() };
        assert_eq!(parse_maps(text, 0x1000_0000), [expected]);
    }

    #[test]
    fn the_end_and_a_cut_differ() {
        let mut bytes = Bytes::new(&b"abcd"[..], Path::new("f"));
        let mut two = [0; 3];
        assert!(bytes.fill(&mut two, "x").unwrap());
        let error = bytes.fill(&mut two, "a number").unwrap_err().to_string();
        assert!(error.contains("f: cut off at offset 4: in a number"), "{error}");
        assert!(!Bytes::new(&b""[..], Path::new("f")).fill(&mut two, "x").unwrap());
    }
}
