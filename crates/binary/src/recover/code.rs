//! Reads the parts of a file that are needed to recover graphs: executable sections, memory words as they are after loading, imports and
//! stubs.
//!
//! If the loader changes a word, its value is taken from the relocation: the addend of a relative relocation, or the name of an imported
//! symbol. Sources: System V ABI, AMD64 supplement (relocation types, procedure linkage table); generic ABI (RELR).

use crate::elf::{Binary, parse_elf};
use crate::error::BinaryError;
use crate::graph::ImportStub;
use crate::instruction::decode_instruction;
use iced_x86::{Mnemonic, OpKind};
use object::read::elf::{ElfFile64, SectionHeader};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, elf};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The content of a word in memory after the loader has applied its relocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeWord {
    /// An address in this file.
    Address(u64),
    /// The address of an imported symbol.
    Import(String),
    /// The result of the resolver at this address, which the loader calls (`IRELATIVE`).
    Resolved(u64),
}

#[derive(Clone, Debug)]
pub struct CodeSection {
    pub name: String,
    pub range: Range<u64>,
}

#[derive(Debug)]
pub struct FileCode<'a> {
    pub binary: &'a Binary,
    /// Code sections, sorted by address. For a file without section headers, its executable segments.
    pub sections: Vec<CodeSection>,
    pub words: BTreeMap<u64, CodeWord>,
    pub stubs: BTreeMap<u64, ImportStub>,
    pub stub_ranges: Vec<Range<u64>>,
    pub exported: Vec<u64>,
    /// Whether the file's entry point calls `main` through the C library.
    pub calls_main: bool,
    /// Addresses of the functions that the loader calls when the program starts or exits.
    pub startup_functions: Vec<u64>,
}

impl<'a> FileCode<'a> {
    pub fn read(binary: &'a Binary) -> Result<FileCode<'a>, BinaryError> {
        let file = parse_elf(binary.path(), binary.data())?;
        let sections = read_sections(binary, &file);
        let words = read_relocated_words(binary, &file);
        let starts_main = |word: &CodeWord| matches!(word, CodeWord::Import(name) if name.split('@').next() == Some("__libc_start_main"));
        let is_static = file.dynamic_symbols().next().is_none();
        let mut code = FileCode {
            binary,
            sections,
            calls_main: is_static || words.values().any(starts_main),
            words,
            stubs: BTreeMap::new(),
            stub_ranges: Vec::new(),
            exported: Vec::new(),
            startup_functions: Vec::new(),
        };
        code.exported = file.dynamic_symbols().filter(|s| s.is_definition() && code.is_code(s.address())).map(|s| s.address()).collect();
        code.startup_functions = code.find_startup_functions(&file);
        code.find_stubs();
        Ok(code)
    }

    pub fn is_code(&self, address: u64) -> bool {
        self.section_at(address).is_some()
    }

    pub fn section_at(&self, address: u64) -> Option<&CodeSection> {
        let after = self.sections.partition_point(|s| s.range.start <= address);
        self.sections[..after].last().filter(|s| s.range.contains(&address))
    }

    pub fn is_stub(&self, address: u64) -> bool {
        // These ranges contain all stubs.
        self.stub_ranges.iter().any(|r| r.contains(&address))
    }

    /// Returns the eight bytes at an address as they are after loading.
    pub fn word_at(&self, address: u64) -> Option<CodeWord> {
        if let Some(word) = self.words.get(&address) {
            return Some(word.clone());
        }
        let bytes: [u8; 8] = self.binary.bytes_at(address)?.get(..8)?.try_into().ok()?;
        Some(CodeWord::Address(u64::from_le_bytes(bytes)))
    }

    pub fn i32_at(&self, address: u64) -> Option<i32> {
        let bytes: [u8; 4] = self.binary.bytes_at(address)?.get(..4)?.try_into().ok()?;
        Some(i32::from_le_bytes(bytes))
    }

    /// Finds the stubs in sections whose name is `.iplt` or begins with `.plt`.
    fn find_stubs(&mut self) {
        for section in self.sections.clone().into_iter().filter(|s| s.name.starts_with(".plt") || s.name == ".iplt") {
            let step = if section.name == ".plt.got" && section.range.end - section.range.start < 16 { 8 } else { 16 };
            let starts = (section.range.start..section.range.end).step_by(step.min(8));
            let named: Vec<ImportStub> = starts.filter_map(|address| self.stub_at(address)).collect();
            self.stubs.extend(named.into_iter().map(|stub| (stub.address, stub)));
            self.stub_ranges.push(section.range);
        }
    }

    /// Returns the stub at an address. A stub consists of an optional `endbr64` and a jump through a word that the loader fills in.
    pub fn stub_at(&self, address: u64) -> Option<ImportStub> {
        let mut at = address;
        let mut instruction = decode_instruction(self.binary.code_at(at)?, at)?;
        if instruction.mnemonic() == Mnemonic::Endbr64 {
            at = instruction.next_ip();
            instruction = decode_instruction(self.binary.code_at(at)?, at)?;
        }
        if instruction.mnemonic() != Mnemonic::Jmp || instruction.op0_kind() != OpKind::Memory || !instruction.is_ip_rel_memory_operand() {
            return None;
        }
        match self.words.get(&instruction.memory_displacement64())? {
            CodeWord::Import(name) => Some(ImportStub { address, import: Some(name.clone()), resolver: None }),
            CodeWord::Resolved(resolver) => Some(ImportStub { address, import: None, resolver: Some(*resolver) }),
            CodeWord::Address(_) => None,
        }
    }

    /// Returns the entry point, the addresses of `.init` and `.fini`, and the functions in the arrays of constructors and destructors.
    fn find_startup_functions(&self, file: &ElfFile64) -> Vec<u64> {
        let mut found = vec![self.binary.entry()];
        for name in [".init", ".fini"] {
            found.extend(file.section_by_name(name).map(|s| s.address()));
        }
        for name in [".init_array", ".fini_array", ".preinit_array"] {
            let Some(section) = file.section_by_name(name) else { continue };
            let end = section.address().saturating_add(section.size().min(1 << 20));
            let words = (section.address()..end).step_by(8).filter_map(|at| self.word_at(at));
            found.extend(words.filter_map(|word| if let CodeWord::Address(to) = word { Some(to) } else { None }));
        }
        found.retain(|&at| self.is_code(at));
        found
    }
}

fn read_sections(binary: &Binary, file: &ElfFile64) -> Vec<CodeSection> {
    let endian = file.endian();
    let is_code = |s: &object::read::elf::ElfSection64<'_, '_>| {
        let header = s.elf_section_header();
        let flags = header.sh_flags(endian);
        flags & u64::from(elf::SHF_EXECINSTR) != 0 && flags & u64::from(elf::SHF_ALLOC) != 0 && header.sh_type(endian) == elf::SHT_PROGBITS
    };
    let mut sections: Vec<CodeSection> = file
        .sections()
        .filter(is_code)
        .filter_map(|s| {
            let in_file = binary.code_at(s.address())?.len() as u64;
            let range = s.address()..s.address().checked_add(s.size().min(in_file))?;
            Some(CodeSection { name: s.name().unwrap_or_default().to_owned(), range })
        })
        .filter(|s| !s.range.is_empty())
        .collect();
    if sections.is_empty() {
        let segments = binary.segments().iter().filter(|s| s.is_executable);
        sections = segments
            .filter_map(|s| Some(s.address..s.address.checked_add(binary.code_at(s.address)?.len() as u64)?))
            .map(|range| CodeSection { name: String::new(), range })
            .collect();
    }
    sections.sort_by_key(|s| (s.range.start, s.range.end));
    // Keeps the first of several overlapping sections. Sections overlap only in corrupt files.
    let mut end = 0;
    sections.retain(|s| {
        let is_separate = s.range.start >= end;
        end = if is_separate { s.range.end } else { end };
        is_separate
    });
    sections
}

fn read_relocated_words(binary: &Binary, file: &ElfFile64) -> BTreeMap<u64, CodeWord> {
    let mut words: BTreeMap<u64, CodeWord> =
        read_relr_words(binary, file).into_iter().map(|(at, to)| (at, CodeWord::Address(to))).collect();
    let names: HashMap<object::SymbolIndex, (String, u64)> = file
        .dynamic_symbols()
        .filter_map(|s| Some((s.index(), (s.name().ok()?.to_owned(), if s.is_definition() { s.address() } else { 0 }))))
        .collect();
    for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let addend = relocation.addend() as u64;
        let symbol = match relocation.target() {
            RelocationTarget::Symbol(index) => names.get(&index),
            _ => None,
        };
        let word = match (r_type, symbol) {
            (elf::R_X86_64_RELATIVE, _) => CodeWord::Address(addend),
            (elf::R_X86_64_IRELATIVE, _) => CodeWord::Resolved(addend),
            (elf::R_X86_64_64, Some((_, address))) if *address != 0 => CodeWord::Address(address.wrapping_add(addend)),
            (elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT, Some((_, address))) if *address != 0 => CodeWord::Address(*address),
            (elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT, Some((name, _))) => CodeWord::Import(name.clone()),
            _ => continue,
        };
        words.insert(at, word);
    }
    words.extend(read_static_irelative_words(file));
    words
}

/// Returns the words with `IRELATIVE` relocations in a statically linked program. No dynamic table refers to these relocations.
fn read_static_irelative_words(file: &ElfFile64) -> Vec<(u64, CodeWord)> {
    let mut found = Vec::new();
    for name in [".rela.plt", ".rela.iplt", ".rela.dyn"] {
        let Some(data) = file.section_by_name(name).and_then(|s| s.data().ok()) else { continue };
        for entry in data.chunks_exact(24) {
            let field = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap_or_default());
            if field(8) as u32 == elf::R_X86_64_IRELATIVE {
                found.push((field(0), CodeWord::Resolved(field(16))));
            }
        }
    }
    found
}

/// Reads packed relative relocations (RELR) and returns the address and the value of each word. In the packed form, an even word is an
/// address, and an odd word is a bitmap for the 63 words that follow.
fn read_relr_words(binary: &Binary, file: &ElfFile64) -> Vec<(u64, u64)> {
    let mut addresses = Vec::new();
    let Some(data) = file.section_by_name(".relr.dyn").and_then(|s| s.data().ok()) else { return Vec::new() };
    let mut next = 0_u64;
    for word in data.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default())) {
        if word & 1 == 0 {
            addresses.push(word);
            next = word.wrapping_add(8);
        } else {
            addresses.extend((0..63).filter(|bit| word >> (bit + 1) & 1 == 1).map(|bit| next.wrapping_add(8 * bit)));
            next = next.wrapping_add(63 * 8);
        }
    }
    let value = |at: u64| Some(u64::from_le_bytes(binary.bytes_at(at)?.get(..8)?.try_into().ok()?));
    addresses.into_iter().filter_map(|at| Some((at, value(at)?))).collect()
}
