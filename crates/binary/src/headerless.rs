//! Reconstructs section headers from program headers, for files without section headers.
//!
//! `sstrip` and some packers remove the section headers, since the loader does not need them. The loader's own tables locate everything
//! that graph recovery needs: `PT_INTERP` names the loader, `PT_DYNAMIC` leads to symbols, relocations and constructor arrays, and
//! `PT_GNU_EH_FRAME` to the unwind tables. Stubs of the procedure linkage table are recognised as jumps through words that relocations fill
//! in. Sources: generic ABI, chapters 4 and 5; Linux Standard Base, "Exception Frames".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
const SECTION_HEADER_SIZE: usize = 64;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// Assumed size of `.init` and `.fini` in bytes. These sections come from the startup files of the C library.
const START_CODE_BYTES: u64 = 32;
/// Opcode of a `jmp` through memory that is addressed relative to `rip`.
const RIP_RELATIVE_JUMP: [u8; 2] = [0xff, 0x25];
/// Bytes that linkers emit after the jump of a stub: a `push` of a relocation index, or padding.
const BYTES_AFTER_STUB_JUMP: [&[u8]; 4] = [&[0x68], &[0x66, 0x90], &[0x0f, 0x1f, 0x44, 0, 0], &[0x66, 0x0f, 0x1f, 0x44, 0, 0]];
const ENDBR64_BYTES: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

struct RebuiltSection {
    name: &'static str,
    kind: u32,
    flags: u64,
    range: Range<u64>,
    /// Name of the section to which `sh_link` of this section refers.
    link: &'static str,
    entry_size: u64,
}

struct LoadedSegment {
    address: u64,
    offset: u64,
    size: u64,
    is_executable: bool,
}

struct HeaderlessImage<'a> {
    data: &'a [u8],
    segments: Vec<LoadedSegment>,
}

/// Returns a copy of a file with section headers appended. Returns `None` if the file already has section headers, or ends before the end
/// of its program headers.
pub fn add_section_headers(data: &[u8]) -> Option<Vec<u8>> {
    if u16_at(data, 60)? != 0 && u64_at(data, 40)? != 0 {
        return None;
    }
    let programs = program_headers(data)?;
    let segment = |p: &[u64; 5]| LoadedSegment { address: p[2], offset: p[1], size: p[3], is_executable: p[4] & 1 != 0 };
    let image = HeaderlessImage { data, segments: programs.iter().filter(|p| p[0] == u64::from(PT_LOAD)).map(segment).collect() };
    let mut sections = Vec::new();
    let dynamic = programs.iter().find(|p| p[0] == u64::from(PT_DYNAMIC)).map(|p| p[2]..p[2].saturating_add(p[3]));
    let tags = dynamic.as_ref().map_or_else(BTreeMap::new, |at| image.read_dynamic_tags(at));
    if let Some(range) = dynamic {
        sections.push(RebuiltSection { name: ".dynamic", kind: 6, flags: 3, range, link: ".dynstr", entry_size: 16 });
        image.add_table_sections(&tags, &mut sections);
    }
    if let Some([_, _, start, size, _]) = programs.iter().find(|p| p[0] == u64::from(PT_INTERP)) {
        let range = *start..start.saturating_add(*size);
        sections.push(RebuiltSection { name: ".interp", kind: 1, flags: 2, range, link: "", entry_size: 0 });
    }
    if let Some(frames) = programs.iter().find(|p| p[0] == u64::from(PT_GNU_EH_FRAME)).and_then(|p| image.find_unwind_tables(p[2])) {
        sections.push(RebuiltSection { name: ".eh_frame", kind: 1, flags: 2, range: frames, link: "", entry_size: 0 });
    }
    image.add_code_sections(&tags, &mut sections);
    Some(image.append_headers(&sections))
}

/// Returns the type, offset, address, file size and flags of each program header.
fn program_headers(data: &[u8]) -> Option<Vec<[u64; 5]>> {
    let (start, count) = (u64_at(data, 32)? as usize, usize::from(u16_at(data, 56)?));
    let header = |n: usize| {
        let at = start.checked_add(n * PROGRAM_HEADER_SIZE)?;
        let flags = u64::from(u32_at(data, at + 4)?);
        Some([u64::from(u32_at(data, at)?), u64_at(data, at + 8)?, u64_at(data, at + 16)?, u64_at(data, at + 32)?, flags])
    };
    (0..count).map(header).collect()
}

impl HeaderlessImage<'_> {
    fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|s| s.address <= address && address - s.address < s.size)?;
        let start = (segment.offset + (address - segment.address)) as usize;
        self.data.get(start..(segment.offset + segment.size) as usize)
    }

    fn read_dynamic_tags(&self, at: &Range<u64>) -> BTreeMap<u64, u64> {
        let Some(bytes) = self.bytes_at(at.start) else { return BTreeMap::new() };
        let entries = bytes.chunks_exact(16).take(((at.end - at.start) / 16) as usize);
        entries.filter_map(|e| Some((u64_at(e, 0)?, u64_at(e, 8)?))).take_while(|(tag, _)| *tag != 0).collect()
    }

    fn add_table_sections(&self, tags: &BTreeMap<u64, u64>, sections: &mut Vec<RebuiltSection>) {
        const WRITABLE_FLAGS: u64 = 3;
        let tag = |tag: u64| tags.get(&tag).copied();
        let mut add = |name, kind, flags, start: Option<u64>, size: Option<u64>, link, entry_size| {
            if let (Some(start), Some(size)) = (start, size) {
                sections.push(RebuiltSection { name, kind, flags, range: start..start.saturating_add(size), link, entry_size });
            }
        };
        add(".dynstr", 3, 2, tag(5), tag(10), "", 0);
        add(".dynsym", 11, 2, tag(6), self.count_dynamic_symbols(tags).map(|n| n * 24), ".dynstr", 24);
        add(".rela.dyn", 4, 2, tag(7), tag(8), ".dynsym", 24);
        add(".rela.plt", 4, 2, tag(23), tag(2), ".dynsym", 24);
        add(".relr.dyn", 19, 2, tag(36), tag(35), "", 8);
        add(".preinit_array", 16, WRITABLE_FLAGS, tag(32), tag(33), "", 8);
        add(".init_array", 14, WRITABLE_FLAGS, tag(25), tag(27), "", 8);
        add(".fini_array", 15, WRITABLE_FLAGS, tag(26), tag(28), "", 8);
    }

    /// Returns the number of dynamic symbols. It is computed from a hash table, since the dynamic section does not contain it.
    fn count_dynamic_symbols(&self, tags: &BTreeMap<u64, u64>) -> Option<u64> {
        const DT_HASH: u64 = 4;
        const DT_GNU_HASH: u64 = 0x6fff_fef5;
        if let Some(table) = tags.get(&DT_HASH).and_then(|at| self.bytes_at(*at)) {
            return Some(u64::from(u32_at(table, 4)?));
        }
        let table = self.bytes_at(*tags.get(&DT_GNU_HASH)?)?;
        let (buckets, first, filter) = (u32_at(table, 0)? as usize, u32_at(table, 4)?, u32_at(table, 8)? as usize);
        let start = 16 + 8 * filter;
        let last = (0..buckets).filter_map(|b| u32_at(table, start + 4 * b)).max().unwrap_or(0);
        if last < first {
            // The file has only imports, which are not in the hash table. Counts up to the last import to which a relocation refers.
            return Some(u64::from(first).max(self.max_relocated_symbol(tags) + 1));
        }
        let chains = start + 4 * buckets;
        let mut at = last;
        while u32_at(table, chains + 4 * (at - first) as usize)? & 1 == 0 {
            at += 1;
        }
        Some(u64::from(at) + 1)
    }

    /// Returns the target address and the symbol index of each relocation.
    fn read_relocations(&self, tags: &BTreeMap<u64, u64>) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for (start, size) in [(7, 8), (23, 2)] {
            let (Some(start), Some(size)) = (tags.get(&start), tags.get(&size)) else { continue };
            let entries = self.bytes_at(*start).unwrap_or_default().chunks_exact(24).take((size / 24) as usize);
            all.extend(entries.filter_map(|e| Some((u64_at(e, 0)?, u64_at(e, 8)? >> 32))));
        }
        all
    }

    fn max_relocated_symbol(&self, tags: &BTreeMap<u64, u64>) -> u64 {
        self.read_relocations(tags).into_iter().map(|(_, symbol)| symbol).max().unwrap_or(0)
    }

    /// Returns the address range of the unwind tables, whose start `.eh_frame_hdr` contains. The end of the segment is taken as their end.
    fn find_unwind_tables(&self, header: u64) -> Option<Range<u64>> {
        const PC_RELATIVE_SIGNED_4_BYTES: u8 = 0x1b;
        let bytes = self.bytes_at(header)?;
        if *bytes.get(1)? != PC_RELATIVE_SIGNED_4_BYTES {
            return None;
        }
        let start = (header + 4).wrapping_add_signed(i64::from(u32_at(bytes, 4)? as i32));
        let size = self.bytes_at(start)?.len() as u64;
        Some(start..start + size)
    }

    /// Adds the sections with code: stubs, `.init`, `.fini`, and everything else as `.text`.
    fn add_code_sections(&self, tags: &BTreeMap<u64, u64>, sections: &mut Vec<RebuiltSection>) {
        const DT_INIT: u64 = 12;
        const DT_FINI: u64 = 13;
        let filled: BTreeSet<u64> = self.read_relocations(tags).into_iter().map(|(place, _)| place).collect();
        for segment in self.segments.iter().filter(|s| s.is_executable) {
            let end = segment.address + segment.size;
            let mut parts: Vec<(Range<u64>, &'static str)> =
                self.find_stub_ranges(segment, &filled).into_iter().map(|r| (r, ".plt")).collect();
            for (tag, name) in [(DT_INIT, ".init"), (DT_FINI, ".fini")] {
                let at = tags.get(&tag).copied().filter(|at| (segment.address..end).contains(at));
                parts.extend(at.map(|at| (at..(at + START_CODE_BYTES).min(end), name)));
            }
            parts.sort_by_key(|p| p.0.start);
            // A section ends where the next one begins at the latest, since the sizes of `.init` and `.fini` are guesses.
            for at in 1..parts.len() {
                parts[at - 1].0.end = parts[at - 1].0.end.min(parts[at].0.start);
            }
            let mut at = segment.address;
            let mut add = |name, range: Range<u64>| {
                if !range.is_empty() {
                    sections.push(RebuiltSection { name, kind: 1, flags: 6, range, link: "", entry_size: 0 });
                }
            };
            for (range, name) in parts {
                add(".text", at..range.start.max(at));
                add(name, range.start.max(at)..range.end.max(at));
                at = at.max(range.end);
            }
            add(".text", at..end);
        }
    }

    /// Returns the ranges of consecutive stubs in a segment.
    fn find_stub_ranges(&self, segment: &LoadedSegment, filled: &BTreeSet<u64>) -> Vec<Range<u64>> {
        let bytes = self.bytes_at(segment.address).unwrap_or_default();
        let is_stub = |at: usize| {
            let jump = if bytes.get(at..)?.starts_with(&ENDBR64_BYTES) { at + 4 } else { at };
            let jump = if bytes.get(jump) == Some(&0xf2) { jump + 1 } else { jump };
            let distance = bytes.get(jump..)?.strip_prefix(&RIP_RELATIVE_JUMP).and_then(|rest| u32_at(rest, 0))?;
            let to = (segment.address + jump as u64 + 6).wrapping_add_signed(i64::from(distance as i32));
            // A function may also begin with such a jump, but then other bytes follow.
            let is_stub = BYTES_AFTER_STUB_JUMP.iter().any(|after| bytes[jump + 6..].starts_with(after));
            (is_stub && filled.contains(&to)).then_some(())
        };
        let mut runs: Vec<Range<u64>> = Vec::new();
        for at in (0..bytes.len()).step_by(8).filter(|at| is_stub(*at).is_some()) {
            let (start, end) = (segment.address + at as u64, segment.address + at as u64 + if at % 16 == 0 { 16 } else { 8 });
            match runs.last_mut().filter(|run| start <= run.end) {
                Some(run) => run.end = end.max(run.end),
                None => runs.push(start..end),
            }
        }
        runs
    }

    fn append_headers(&self, sections: &[RebuiltSection]) -> Vec<u8> {
        let mut names = vec![0];
        let place = |name: &str| sections.iter().position(|s| s.name == name).map_or(0, |at| at as u32 + 1);
        let mut headers = vec![0; SECTION_HEADER_SIZE];
        for section in sections {
            let offset = self.segments.iter().find(|s| (s.address..s.address + s.size).contains(&section.range.start));
            let offset = offset.map_or(0, |s| s.offset + (section.range.start - s.address));
            let mut header = [0; SECTION_HEADER_SIZE];
            write_at(&mut header, 0, &(names.len() as u32).to_le_bytes());
            write_at(&mut header, 4, &section.kind.to_le_bytes());
            let size = section.range.end - section.range.start;
            for (at, value) in [(8, section.flags), (16, section.range.start), (24, offset), (32, size), (48, 8), (56, section.entry_size)]
            {
                write_at(&mut header, at, &value.to_le_bytes());
            }
            write_at(&mut header, 40, &place(section.link).to_le_bytes());
            headers.extend(header);
            names.extend(section.name.bytes().chain([0]));
        }
        let mut header = [0; SECTION_HEADER_SIZE];
        write_at(&mut header, 0, &(names.len() as u32).to_le_bytes());
        names.extend(b".shstrtab\0");
        let mut file = self.data.to_vec();
        file.resize(file.len().next_multiple_of(8), 0);
        write_at(&mut header, 4, &3u32.to_le_bytes());
        write_at(&mut header, 24, &(file.len() as u64).to_le_bytes());
        write_at(&mut header, 32, &(names.len() as u64).to_le_bytes());
        file.extend(names);
        file.resize(file.len().next_multiple_of(8), 0);
        let start = file.len() as u64;
        let count = sections.len() as u16 + 2;
        write_at(&mut file[..HEADER_SIZE], 40, &start.to_le_bytes());
        for (at, value) in [(58, SECTION_HEADER_SIZE as u16), (60, count), (62, count - 1)] {
            write_at(&mut file[..HEADER_SIZE], at, &value.to_le_bytes());
        }
        file.extend(headers);
        file.extend(header);
        file
    }
}

fn write_at(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
