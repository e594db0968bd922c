//! The memory of a process, accessed through `/proc/PID/mem`. This allows writing to pages that the process itself may not write, and
//! setting many breakpoints with one system call instead of one per word.

use crate::journal::SharedCodeChanges;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

#[derive(Debug)]
pub struct Memory {
    file: File,
    /// The journal for [`Memory::patch`]; `None` for memory whose changes need not be undone.
    changes: Option<SharedCodeChanges>,
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// The process has ended, or this process may not trace it.
    pub fn open(process: i32) -> io::Result<Self> {
        Ok(Self { file: File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?, changes: None })
    }

    /// Opens the memory of a process, with a journal of the changes to its code.
    pub fn open_journaled(process: i32, changes: SharedCodeChanges) -> io::Result<Self> {
        Ok(Self { changes: Some(changes), ..Self::open(process)? })
    }

    /// Fills `bytes` from `address`.
    ///
    /// # Errors
    /// Part of the range is not mapped.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, address)
    }

    /// Reads up to `length` bytes from `address`, as far as they are mapped.
    pub fn read_some(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.file.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    pub fn word(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads a zero-terminated string of up to 4096 bytes, without the zero.
    pub fn string(&self, address: u64) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < 4096 {
            // One read must not cross a page boundary, since the next page may not be mapped.
            let at = address + text.len() as u64;
            let piece = self.read_some(at, (4096 - at % 4096) as usize);
            match piece.iter().position(|b| *b == 0) {
                Some(end) => {
                    text.extend(&piece[..end]);
                    break;
                }
                None if piece.is_empty() => break,
                None => text.extend(piece),
            }
        }
        text.truncate(4096);
        text
    }

    /// Writes `bytes` to `address`, whatever the protection of the pages.
    ///
    /// # Errors
    /// Part of the range is not mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }

    /// Replaces pieces of code, which are sorted by address. Pieces that start less than a page apart share one read and one write. The
    /// changes are first entered in the journal, if there is one.
    ///
    /// # Errors
    /// The process is gone, or part of the range is not mapped.
    pub fn patch(&self, pieces: &[(u64, &[u8])]) -> io::Result<()> {
        const MAX_PATCH_GAP_BYTES: u64 = 4096;
        for near in pieces.chunk_by(|one, next| next.0 - one.0 < MAX_PATCH_GAP_BYTES) {
            let [(start, _), ..] = near else { continue };
            let [.., (last, bytes_of_last)] = near else { continue };
            let mut bytes = vec![0; (last - start) as usize + bytes_of_last.len()];
            self.read(*start, &mut bytes)?;
            for (address, piece) in near {
                let at = (address - start) as usize;
                if let Some(changes) = &self.changes {
                    changes.borrow_mut().enter(*address, &bytes[at..at + piece.len()], piece);
                }
                bytes[at..at + piece.len()].copy_from_slice(piece);
            }
            self.write(*start, &bytes)?;
        }
        Ok(())
    }
}

/// The effect of a system call on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryEffect {
    Protected,
    /// The bytes may have changed.
    Written,
    /// A different file or memory is mapped there now, or nothing.
    Replaced,
}

pub fn do_ranges_overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

pub fn intersect_ranges(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// Returns the parts of a range that are before and after another range.
pub fn parts_outside_range(range: &Range<u64>, other: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let parts = [range.start..range.end.min(other.start), range.start.max(other.end)..range.end];
    parts.into_iter().filter(|part| !part.is_empty())
}

/// Extends a range to whole pages.
pub fn round_to_whole_pages(range: &Range<u64>) -> Range<u64> {
    range.start & !0xfff..range.end.saturating_add(0xfff) & !0xfff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_written() {
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let text = *b"ab\0cd";
        assert_eq!(memory.string(text.as_ptr() as u64), b"ab");
        let word = Box::new(7u64);
        memory.write(&raw const *word as u64, &9u64.to_le_bytes()).unwrap();
        assert_eq!(memory.word(&raw const *word as u64).unwrap(), 9);
        assert!(memory.word(8).is_err());
    }
}
