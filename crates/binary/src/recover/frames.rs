//! Reads unwind tables, which give the extents of functions, their landing pads, and the depth of the stack at each instruction.
//!
//! Compilers generate unwind entries for all code, and stripping keeps them. Sources: System V ABI, AMD64 supplement, section 3.7
//! (`.eh_frame`); Itanium C++ ABI, "Exception Handling Tables" (`.gcc_except_table`).

use super::code::FileCode;
use super::handlers::{ProtectedRange, read_protected_ranges};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Register, UnwindContext, UnwindSection,
};
use std::cell::Cell;

type UnwindSlice<'a> = EndianSlice<'a, LittleEndian>;

/// DWARF number of the register `rsp`.
const STACK_POINTER: Register = Register(7);
/// Offset of the canonical frame address from `rsp` at a function's entry. It is the size of the return address.
const CFA_OFFSET_AT_ENTRY: i64 = 8;

/// A range of code that one unwind entry describes.
#[derive(Debug)]
pub struct UnwindEntry<'a> {
    pub start: u64,
    pub end: u64,
    pub protected: Vec<ProtectedRange>,
    /// Whether the stack has the same depth at `start` as at a function's entry. If not, the compiler has split this code off from a
    /// function.
    pub starts_as_function: bool,
    entry: FrameDescriptionEntry<UnwindSlice<'a>>,
}

pub struct UnwindTables<'a> {
    /// Entries, sorted by address. They do not overlap.
    pub frames: Vec<UnwindEntry<'a>>,
    /// Start of each entry. Stored separately, so that a search touches little memory.
    starts: Vec<u64>,
    /// Index of the entry that was found last, since most searches are for addresses near the previous one.
    last_found: Cell<usize>,
    section: EhFrame<UnwindSlice<'a>>,
    bases: BaseAddresses,
}

impl<'a> UnwindTables<'a> {
    /// Reads the unwind tables of a file. Skips invalid entries.
    pub fn read(code: &FileCode<'a>) -> UnwindTables<'a> {
        let binary = code.binary;
        let (range, data) = binary.section(".eh_frame").unwrap_or((0..0, &[]));
        let text = binary.section(".text").map_or(0, |(text, _)| text.start);
        let got = binary.section(".got").map_or(0, |(got, _)| got.start);
        let bases = BaseAddresses::default().set_eh_frame(range.start).set_text(text).set_got(got);
        let section = EhFrame::new(data, LittleEndian);
        let mut all = UnwindTables { frames: Vec::new(), starts: Vec::new(), last_found: Cell::new(0), section, bases };
        let mut entries = all.section.entries(&all.bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
            // The entry of a signal trampoline starts one byte early, because unwinders look up return addresses minus one.
            let start = entry.initial_address().saturating_add(u64::from(entry.is_signal_trampoline()));
            let end = entry.initial_address().saturating_add(entry.len());
            let fits = code.section_at(start).is_some_and(|s| end <= s.range.end);
            if entry.len() == 0 || !fits || code.stub_ranges.iter().any(|r| r.contains(&start)) {
                continue;
            }
            let protected =
                entry.lsda().and_then(|p| resolve_pointer(code, p)).map_or_else(Vec::new, |at| read_protected_ranges(code, at, start));
            all.frames.push(UnwindEntry { start, end, protected, starts_as_function: true, entry });
        }
        all.frames.sort_by_key(|f| (f.start, std::cmp::Reverse(f.end)));
        let mut end = 0;
        all.frames.retain(|f| {
            let is_separate = f.start >= end;
            end = end.max(f.end);
            is_separate
        });
        all.starts = all.frames.iter().map(|f| f.start).collect();
        for at in 0..all.frames.len() {
            all.frames[at].starts_as_function = all.has_entry_stack_depth(at, all.frames[at].start) != Some(false);
        }
        all
    }

    /// Returns the index of the entry that describes an address.
    pub fn index_at(&self, address: u64) -> Option<usize> {
        let last = self.last_found.get();
        if self.frames.get(last).is_some_and(|frame| (frame.start..frame.end).contains(&address)) {
            return Some(last);
        }
        let after = self.starts.partition_point(|start| *start <= address);
        let found = after.checked_sub(1).filter(|&at| address < self.frames[at].end);
        found.inspect(|at| self.last_found.set(*at))
    }

    /// Returns true if the stack has the same depth before the instruction at an address as at the function's entry. Returns `None` if the
    /// tables do not say.
    pub fn has_entry_stack_depth(&self, frame: usize, address: u64) -> Option<bool> {
        let mut context = UnwindContext::new();
        let row = self.frames[frame].entry.unwind_info_for_address(&self.section, &self.bases, &mut context, address).ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Some(*register == STACK_POINTER && *offset == CFA_OFFSET_AT_ENTRY),
            CfaRule::Expression(_) => None,
        }
    }
}

fn resolve_pointer(code: &FileCode, pointer: gimli::Pointer) -> Option<u64> {
    match pointer {
        gimli::Pointer::Direct(at) => Some(at),
        gimli::Pointer::Indirect(at) => match code.word_at(at)? {
            super::code::CodeWord::Address(to) => Some(to),
            _ => None,
        },
    }
}
