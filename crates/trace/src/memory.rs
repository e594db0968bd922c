//! The memory of a process, read and written through `/proc/PID/mem`: code pages that the process itself may not write can be written so,
//! and many breakpoints are set with one system call each page run instead of one each word.

use crate::journal::SharedCodeChanges;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The memory of a stopped process.
#[derive(Debug)]
pub struct Memory {
    file: File,
    /// Where [`Memory::patch`] enters what it changes; `None` for memory that no session undoes, as that of other processes.
    changes: Option<SharedCodeChanges>,
}

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Whether code in it can run.
    pub executable: bool,
    /// Its protection, as mprotect(2) takes it.
    pub protection: i32,
    /// Offset in the file.
    pub offset: u64,
    /// The file, or what the kernel calls the mapping; may be empty.
    pub name: String,
}

impl ProcessMapping {
    /// A line of `/proc/PID/maps`.
    pub fn parse(line: &str) -> Option<ProcessMapping> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let protection = fields.next()?;
        let offset = fields.next()?;
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        Some(ProcessMapping {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            executable: protection.contains('x'),
            protection: [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)]
                .into_iter()
                .filter(|(letter, _)| protection.contains(*letter))
                .fold(libc::PROT_NONE, |all, (_, one)| all | one),
            offset: hexadecimal(offset)?,
            name: fields.nth(2).unwrap_or("").trim_start().to_owned(),
        })
    }
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// The process is gone, or may not be followed.
    pub fn open(process: i32) -> io::Result<Self> {
        Ok(Self { file: File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?, changes: None })
    }

    /// Opens the memory of a process, with the journal of changes to its code.
    ///
    /// # Errors
    /// As [`Memory::open`].
    pub fn open_journaled(process: i32, changes: SharedCodeChanges) -> io::Result<Self> {
        Ok(Self { changes: Some(changes), ..Self::open(process)? })
    }

    /// Fills `bytes` from `address`.
    ///
    /// # Errors
    /// Not all of it is mapped.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, address)
    }

    /// At most `length` bytes from `address`: as many as are mapped.
    pub fn read_some(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.file.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// The word at `address`.
    ///
    /// # Errors
    /// It is not mapped.
    pub fn word(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The bytes of a string that a zero ends, at most 4096 of them.
    pub fn string(&self, address: u64) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < 4096 {
            // Not across a page's end in one read: the next page may not be mapped.
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

    /// Writes `bytes` to `address`, whatever the protection of the page.
    ///
    /// # Errors
    /// Not all of it is mapped.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }

    /// Replaces pieces of code, in the order of their addresses: those that are near each other by one read and one write. What is replaced
    /// is entered in the journal before.
    ///
    /// # Errors
    /// The process is gone, or has no such memory.
    pub fn patch(&self, pieces: &[(u64, &[u8])]) -> io::Result<()> {
        const NEAR: u64 = 4096;
        for near in pieces.chunk_by(|one, next| next.0 - one.0 < NEAR) {
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

/// What a system call has done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryEffect {
    /// It has the protection that the program gave it.
    Protected,
    /// Its bytes may be others.
    Written,
    /// Something else is mapped there, or nothing.
    Replaced,
}

/// Whether two ranges have an address in common.
pub fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// What of a range lies in another.
pub fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// What of a range lies outside another: before it and after it.
pub fn outside(range: &Range<u64>, other: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let parts = [range.start..range.end.min(other.start), range.start.max(other.end)..range.end];
    parts.into_iter().filter(|part| !part.is_empty())
}

/// The pages that a range lies in.
pub fn pages(range: &Range<u64>) -> Range<u64> {
    range.start & !0xfff..range.end.saturating_add(0xfff) & !0xfff
}

/// The mappings of a process.
///
/// # Errors
/// The process is gone.
pub fn mappings(process: i32) -> io::Result<Vec<ProcessMapping>> {
    Ok(std::fs::read_to_string(format!("/proc/{process}/maps"))?.lines().filter_map(ProcessMapping::parse).collect())
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

    #[test]
    fn own_mappings_have_this_code() {
        let mappings = mappings(std::process::id() as i32).unwrap();
        let here = own_mappings_have_this_code as *const () as u64;
        let mapping = mappings.iter().find(|m| (m.start..m.end).contains(&here)).unwrap();
        assert!(mapping.executable && mapping.name.starts_with('/'));
    }
}
