//! Reads core files, which show where each thread of a process was and which files were mapped.
//!
//! Source: core(5), elf(5). The layouts of `NT_PRSTATUS` (`struct elf_prstatus`) and `NT_FILE` are those of Linux on x86-64.

use crate::BinaryError;
use crate::headerless::u64_at;
use object::Endianness;
use object::elf::{ET_CORE, FileHeader64, NT_FILE, NT_PRSTATUS};
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};

/// Offsets of the thread ID and of the saved instruction pointer in `struct elf_prstatus`.
const THREAD_ID_OFFSET: usize = 32;
const INSTRUCTION_POINTER_OFFSET: usize = 112 + 16 * 8;

/// The content of a core file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreFile {
    /// Threads of the process. The thread that received the fatal signal is the first.
    pub threads: Vec<CoreThread>,
    /// Ranges of files that were mapped into the process.
    pub files: Vec<FileInMemory>,
}

/// A thread in a core file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreThread {
    /// The kernel's thread ID.
    pub thread: u32,
    /// Address of the instruction that would have been executed next, or that caused the fault.
    pub address: u64,
}

/// A range of a file that was mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInMemory {
    /// Address of the first mapped byte.
    pub start: u64,
    /// Address after the last mapped byte.
    pub end: u64,
    /// Offset of the first mapped byte in the file.
    pub offset: u64,
    /// Path of the file.
    pub path: PathBuf,
}

impl CoreFile {
    /// Reads a core file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not the core file of a 64-bit process.
    pub fn read(path: &Path) -> Result<CoreFile, BinaryError> {
        let data = std::fs::read(path).map_err(|source| BinaryError::Read { path: path.to_owned(), source })?;
        CoreFile::parse(&data).map_err(|what| BinaryError::Core { path: path.to_owned(), what })
    }

    /// Returns the mapped range of a file that contains an address.
    pub fn file_at(&self, address: u64) -> Option<&FileInMemory> {
        self.files.iter().find(|f| (f.start..f.end).contains(&address))
    }

    fn parse(data: &[u8]) -> Result<CoreFile, String> {
        let to_text = |error: object::Error| error.to_string();
        let header = FileHeader64::<Endianness>::parse(data).map_err(to_text)?;
        let endian = header.endian().map_err(to_text)?;
        if header.e_type(endian) != ET_CORE {
            return Err("not a core file".into());
        }
        let mut core = CoreFile::default();
        for segment in header.program_headers(endian, data).map_err(to_text)? {
            let Some(mut notes) = segment.notes(endian, data).map_err(to_text)? else { continue };
            while let Some(note) = notes.next().map_err(to_text)? {
                match (note.name(), note.n_type(endian)) {
                    (b"CORE", NT_PRSTATUS) => core.threads.extend(parse_thread(note.desc())),
                    (b"CORE", NT_FILE) => core.files = parse_mapped_files(note.desc()).ok_or("the list of mapped files is corrupt")?,
                    _ => {}
                }
            }
        }
        if core.threads.is_empty() {
            return Err("the core file has no threads".into());
        }
        Ok(core)
    }
}

fn parse_thread(status: &[u8]) -> Option<CoreThread> {
    let thread = status.get(THREAD_ID_OFFSET..THREAD_ID_OFFSET + 4)?;
    Some(CoreThread { thread: u32::from_le_bytes(thread.try_into().ok()?), address: u64_at(status, INSTRUCTION_POINTER_OFFSET)? })
}

/// Parses an `NT_FILE` note: a count, the page size, the addresses and the offset (in pages) of each range, and then the file names.
fn parse_mapped_files(note: &[u8]) -> Option<Vec<FileInMemory>> {
    let (count, page) = (usize::try_from(u64_at(note, 0)?).ok()?, u64_at(note, 8)?);
    let names = note.get(16usize.checked_add(count.checked_mul(24)?)?..)?;
    let mut names = names.split(|byte| *byte == 0);
    (0..count)
        .map(|index| {
            let at = 16 + 24 * index;
            let path = PathBuf::from(String::from_utf8_lossy(names.next()?).into_owned());
            Some(FileInMemory {
                start: u64_at(note, at)?,
                end: u64_at(note, at + 8)?,
                offset: u64_at(note, at + 16)?.checked_mul(page)?,
                path,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrupt_file_list_is_rejected() {
        let words: Vec<u8> = [2u64, 4096, 0x1000, 0x3000, 0, 0x3000, 0x4000, 2].iter().flat_map(|w| w.to_le_bytes()).collect();
        let note = [&words[..], b"/bin/a\0/lib/b\0"].concat();
        let found = parse_mapped_files(&note).unwrap();
        assert_eq!((found[1].start, found[1].end, found[1].offset, found[1].path.as_path()), (0x3000, 0x4000, 8192, Path::new("/lib/b")));
        assert_eq!(parse_mapped_files(&note[..60]), None);
        assert_eq!(parse_mapped_files(&[0xff; 16]), None);
    }

    #[test]
    fn program_is_not_a_core_file() {
        let own = std::env::current_exe().unwrap();
        assert!(CoreFile::read(&own).unwrap_err().to_string().contains("not a core file"));
    }
}
