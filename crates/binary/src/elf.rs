//! Reads ELF executables and shared libraries (x86-64 only): segments, code, function symbols.
//!
//! Addresses are virtual addresses as in the ELF file. In a process, they are shifted by the load bias, which [`Binary::load_bias`]
//! computes from a mapping.

use crate::error::BinaryError;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind, elf};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Address of the first byte.
    pub address: u64,
    /// Size in memory in bytes.
    pub size: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Size in the file in bytes.
    pub file_size: u64,
    /// Whether the segment contains code.
    pub is_executable: bool,
}

/// The symbol table in which a symbol was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolSource {
    /// The full symbol table (`.symtab`), which `strip` removes.
    Full,
    /// The dynamic symbol table (`.dynsym`), which `strip` keeps.
    Dynamic,
}

/// A function's symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSymbol {
    /// Linkage name, which [`crate::demangle`] makes readable.
    pub name: String,
    /// Address of the function's first byte.
    pub address: u64,
    /// Size of the function in bytes; 0 if unknown.
    pub size: u64,
    /// Whether other files can call or replace the function.
    pub is_global: bool,
    /// The symbol table that contains the symbol.
    pub source: SymbolSource,
}

/// An executable or shared library, whose file was read into memory.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
    data: Arc<[u8]>,
    segments: Vec<LoadSegment>,
    functions: Vec<FunctionSymbol>,
    build_id: Option<String>,
    entry: u64,
    position_independent: bool,
}

impl Binary {
    /// Reads an ELF file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not an x86-64 executable or shared library, or is corrupt.
    pub fn read(path: &Path) -> Result<Binary, BinaryError> {
        let data = std::fs::read(path).map_err(BinaryError::read(path))?;
        Binary::parse(path, data.into())
    }

    /// Parses the content of a file. Error messages call the file `path`.
    pub fn parse(path: &Path, data: Arc<[u8]>) -> Result<Binary, BinaryError> {
        check_header(path, &data)?;
        let data = crate::headerless::add_section_headers(&data).map_or(data, Arc::from);
        let file = parse_elf(path, &data)?;
        if !matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
            return Err(BinaryError::Foreign { path: path.to_owned(), what: "an object file or core dump".into() });
        }
        let build_id = file.build_id().ok().flatten().map(to_hex);
        Ok(Binary {
            path: path.to_owned(),
            segments: read_segments(&file),
            functions: read_functions(&file),
            build_id,
            entry: file.entry(),
            position_independent: file.elf_header().e_type(file.endian()) == elf::ET_DYN,
            data: data.clone(),
        })
    }

    /// Adds function symbols of a separate debug file.
    pub(crate) fn add_functions(&mut self, functions: Vec<FunctionSymbol>) {
        self.functions.extend(functions);
        sort_functions(&mut self.functions);
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content of the file.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the build ID in hexadecimal, if the linker wrote one.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// Returns the address of the entry point; 0 in most shared libraries.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Returns true if the file can be loaded at any address, which is the case for position-independent executables and shared libraries.
    pub fn is_position_independent(&self) -> bool {
        self.position_independent
    }

    /// Returns the loadable segments, sorted by address.
    pub fn segments(&self) -> &[LoadSegment] {
        &self.segments
    }

    /// Returns the function symbols, sorted by address. At equal addresses, symbols of the full table are before dynamic symbols, and
    /// global symbols before local ones.
    pub fn functions(&self) -> &[FunctionSymbol] {
        &self.functions
    }

    /// Returns the symbol of the function that contains an address. This is the first of the symbols at the highest symbol address up to
    /// `address` that has no size or extends beyond `address`.
    pub fn function_at(&self, address: u64) -> Option<&FunctionSymbol> {
        let after = self.functions.partition_point(|f| f.address <= address);
        let start = self.functions[..after].last()?.address;
        let first = self.functions.partition_point(|f| f.address < start);
        self.functions[first..after].iter().find(|f| f.size == 0 || address - f.address < f.size)
    }

    /// Returns the bytes from an address to the end of its segment in the file. Returns `None` if no segment contains the address.
    pub fn bytes_at(&self, address: u64) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|s| address.checked_sub(s.address).is_some_and(|at| at < s.file_size))?;
        let from = usize::try_from(segment.file_offset + (address - segment.address)).ok()?;
        let to = usize::try_from(segment.file_offset.checked_add(segment.file_size)?).ok()?;
        self.data.get(from..to.min(self.data.len()))
    }

    /// Returns the code from an address to the end of its segment. Returns `None` if the address is not in an executable segment.
    pub fn code_at(&self, address: u64) -> Option<&[u8]> {
        self.is_code(address).then(|| self.bytes_at(address)).flatten()
    }

    /// Returns true if an address is in an executable segment.
    pub fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|s| s.is_executable && address.checked_sub(s.address).is_some_and(|at| at < s.file_size))
    }

    /// Returns the address range and the content of a section. Returns `None` if the file has no section with this name, or if the content
    /// is outside the file.
    pub fn section(&self, name: &str) -> Option<(Range<u64>, &[u8])> {
        let file = ElfFile64::<object::Endianness>::parse(&*self.data).ok()?;
        let section = file.section_by_name(name)?;
        let (offset, size) = section.file_range()?;
        let from = usize::try_from(offset).ok()?;
        let content = self.data.get(from..from.checked_add(usize::try_from(size).ok()?)?)?;
        Some((section.address()..section.address().checked_add(section.size())?, content))
    }

    /// Returns the load bias, by which process addresses are higher than file addresses, if the bytes of the file from `offset` on are
    /// mapped at `start`. Returns `None` if no segment contains `offset`.
    pub fn load_bias(&self, start: u64, offset: u64) -> Option<u64> {
        let page = |at: u64| at & !0xfff;
        let holds = |s: &&LoadSegment| (page(s.file_offset)..s.file_offset.saturating_add(s.file_size)).contains(&offset);
        let segment = self.segments.iter().filter(holds).max_by_key(|s| s.is_executable)?;
        Some(start.wrapping_sub(segment.address.wrapping_sub(segment.file_offset).wrapping_add(offset)))
    }
}

pub(crate) fn parse_elf<'a>(path: &Path, data: &'a [u8]) -> Result<ElfFile64<'a>, BinaryError> {
    ElfFile64::parse(data).map_err(|e| BinaryError::corrupt(path, format!("ELF header: {e}")))
}

pub(crate) fn to_hex(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

fn check_header(path: &Path, data: &[u8]) -> Result<(), BinaryError> {
    let foreign = |what: &str| Err(BinaryError::Foreign { path: path.to_owned(), what: what.to_owned() });
    match data {
        [0x7f, b'E', b'L', b'F', 1, ..] => foreign("a 32-bit ELF file"),
        [0x7f, b'E', b'L', b'F', 2, 1, ..] if data.len() >= 64 => match u16::from_le_bytes([data[18], data[19]]) {
            elf::EM_X86_64 => Ok(()),
            machine => foreign(&format!("an ELF file for a different processor (machine {machine})")),
        },
        [0x7f, b'E', b'L', b'F', ..] => foreign("a truncated or big-endian ELF file"),
        [b'#', b'!', ..] => foreign("a script"),
        _ => foreign("not an ELF file"),
    }
}

fn read_segments(file: &ElfFile64) -> Vec<LoadSegment> {
    let flags = |s: &object::read::elf::ElfSegment64<'_, '_>| match s.flags() {
        object::SegmentFlags::Elf { p_flags } => p_flags,
        _ => 0,
    };
    let mut segments: Vec<LoadSegment> = file
        .segments()
        .map(|s| LoadSegment {
            address: s.address(),
            size: s.size(),
            file_offset: s.file_range().0,
            file_size: s.file_range().1,
            is_executable: flags(&s) & elf::PF_X != 0,
        })
        .collect();
    segments.sort_by_key(|s| s.address);
    segments
}

pub(crate) fn read_functions(file: &ElfFile64) -> Vec<FunctionSymbol> {
    let full = file.symbols().map(|s| (s, SymbolSource::Full));
    let dynamic = file.dynamic_symbols().map(|s| (s, SymbolSource::Dynamic));
    let is_function = |s: &object::read::elf::ElfSymbol64<'_, '_>| {
        let is_indirect = matches!(s.flags(), object::SymbolFlags::Elf { st_info, .. } if st_info & 0xf == elf::STT_GNU_IFUNC);
        (s.kind() == SymbolKind::Text || is_indirect) && s.is_definition() && s.address() != 0
    };
    let mut functions: Vec<FunctionSymbol> = full
        .chain(dynamic)
        .filter(|(s, _)| is_function(s))
        .filter_map(|(s, source)| {
            let name = s.name().ok().filter(|n| !n.is_empty())?.to_owned();
            Some(FunctionSymbol { name, address: s.address(), size: s.size(), is_global: s.is_global(), source })
        })
        .collect();
    sort_functions(&mut functions);
    functions
}

fn sort_functions(functions: &mut Vec<FunctionSymbol>) {
    let rank = |f: &FunctionSymbol| (f.address, f.source != SymbolSource::Full, f.size == 0, !f.is_global);
    functions.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name)));
    functions.dedup_by(|a, b| (a.address, &a.name) == (b.address, &b.name));
}

#[cfg(test)]
mod tests {
    use super::*;

    // The tests look for its symbol.
    #[inline(never)]
    fn read_test_program() -> Binary {
        Binary::read(&std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn functions_of_test_program_are_found() {
        let binary = read_test_program();
        let symbol = binary.functions().iter().find(|f| f.name.contains("read_test_program") && f.size > 0).unwrap();
        assert_eq!(binary.function_at(symbol.address + symbol.size - 1).unwrap().address, symbol.address);
        assert!(binary.is_code(symbol.address) && binary.code_at(symbol.address).is_some());
        assert!(binary.is_position_independent() && binary.is_code(binary.entry()));
        let (range, text) = binary.section(".text").unwrap();
        assert_eq!(range.end - range.start, text.len() as u64);
        assert!(range.contains(&symbol.address));
    }

    #[test]
    fn load_bias_follows_from_a_mapping() {
        let binary = read_test_program();
        let code = binary.segments().iter().find(|s| s.is_executable).unwrap();
        let page = code.file_offset & !0xfff;
        let start = 0x7f00_0000_0000 + (code.address & !0xfff);
        assert_eq!(binary.load_bias(start, page), Some(0x7f00_0000_0000));
        assert_eq!(binary.load_bias(start, u64::MAX), None);
    }

    #[test]
    fn foreign_files_are_rejected_with_their_kind() {
        let parse = |bytes: &[u8]| Binary::parse(Path::new("f"), bytes.to_vec().into()).unwrap_err().to_string();
        assert!(parse(b"#!/bin/sh\n").contains("a script"));
        assert!(parse(b"").contains("not an ELF file"));
        assert!(parse(b"\x7fELF\x01\x01").contains("32-bit"));
        assert!(parse(b"\x7fELF\x02\x01").contains("truncated"));
        let mut other = read_test_program().data()[..64].to_vec();
        other[18] = 183;
        assert!(parse(&other).contains("machine 183"));
        assert!(Binary::read(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }

    #[test]
    fn corrupt_file_does_not_panic() {
        let whole = read_test_program();
        let head = whole.data().len().min(4096);
        for at in 0..head.min(1024) {
            let mut bytes = whole.data()[..head].to_vec();
            bytes[at] ^= 0xff;
            if let Ok(binary) = Binary::parse(Path::new("f"), bytes.into()) {
                let _ = (binary.function_at(0x1000), binary.bytes_at(binary.entry()), binary.section(".text"));
            }
        }
    }
}
