//! Makes the heaps of all copies start at the same address. Paths may depend on the addresses of objects, as in hash tables of pointers,
//! and all copies must execute the same paths.
//!
//! Without address randomisation, Linux places the heap after the last loaded segment (execve(2), brk(2)). Copies have code of different
//! size, so their last segments end at different pages. This module extends each last segment to the highest of these ends. That costs no
//! memory, because the added pages are never touched, and it moves no static data.

use anyhow::{Context, Result};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE_SIZE: u64 = 4096;
/// Values of `p_type` for a loadable segment and of `p_flags` for a writable one.
const PT_LOAD: u64 = 1;
const PF_W: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LastLoadSegment {
    /// File offset of the segment's program header.
    header: u64,
    address: u64,
    size: u64,
    is_writable: bool,
}

impl LastLoadSegment {
    fn end(self) -> u64 {
        (self.address + self.size).next_multiple_of(PAGE_SIZE)
    }
}

/// Makes the heaps of all copies start at the same address, which is at least the address at which the original program's heap starts.
pub fn extend_segments_to_align_heaps(copies: &[PathBuf], program: &Path) -> Result<()> {
    let last = |path: &Path| -> Result<Option<LastLoadSegment>> {
        Ok(find_last_segment(&fs::read(path).with_context(|| format!("cannot read {}", path.display()))?))
    };
    let ends = copies.iter().map(|path| last(path)).collect::<Result<Vec<_>>>()?;
    let end = ends.iter().copied().chain([last(program)?]).flatten().map(LastLoadSegment::end).max().unwrap_or(0);
    for (path, segment) in copies.iter().zip(ends) {
        let Some(segment) = segment.filter(|s| s.is_writable && s.end() < end) else { continue };
        let write = |file: fs::File| file.write_all_at(&(end - segment.address).to_le_bytes(), segment.header + 40);
        OpenOptions::new().write(true).open(path).and_then(write).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Finds the last loadable segment of a 64-bit ELF file in its program headers (System V ABI, chapter 5).
fn find_last_segment(bytes: &[u8]) -> Option<LastLoadSegment> {
    let number = |at: u64, length: usize| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let segment = |at: u64| {
        let header = first.checked_add(at * size)?;
        let (kind, flags, address, size) = (number(header, 4)?, number(header + 4, 4)?, number(header + 16, 8)?, number(header + 40, 8)?);
        (kind == PT_LOAD).then_some(LastLoadSegment { header, address, size, is_writable: flags & PF_W != 0 })
    };
    (0..count).filter_map(segment).max_by_key(|s| s.address.saturating_add(s.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an ELF file with these program headers (type, flags, address, size).
    fn create_elf(segments: &[[u64; 4]]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = segments.len() as u8;
        for [kind, flags, address, size] in segments {
            bytes.extend((*kind as u32).to_le_bytes());
            bytes.extend((*flags as u32).to_le_bytes());
            [0, *address, *address, 0, *size, 0].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        }
        bytes
    }

    #[test]
    fn writable_last_segments_are_extended_to_the_same_end() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str, last: [u64; 4]| {
            let path = folder.path().join(name);
            fs::write(&path, create_elf(&[[1, 5, 0, 0x500], last, [0x6474_e551, 6, 0x9000, 0x9000]])).unwrap();
            path
        };
        let copies = [made("a", [1, 6, 0x1800, 0x900]), made("b", [1, 6, 0x2800, 0x2900]), made("c", [1, 4, 0x1000, 0x10])];
        let whole = made("whole", [1, 6, 0x3000, 0x2001]);
        extend_segments_to_align_heaps(&copies, &whole).unwrap();
        let ends: Vec<u64> = copies.iter().map(|path| find_last_segment(&fs::read(path).unwrap()).unwrap().end()).collect();
        // The third copy is unchanged, because its last segment is not writable.
        assert_eq!(ends, [0x6000, 0x6000, 0x2000]);
        assert_eq!(find_last_segment(b"#!/bin/sh"), None);
    }
}
