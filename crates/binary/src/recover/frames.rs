//! What the unwind tables say: where functions' code begins and ends, where exceptions land, how deep the stack is.
//!
//! Compilers describe all code that they generate, also in stripped files, since exceptions, profilers and debuggers
//! need it. Sources: System V ABI, AMD64 supplement, section 3.7 (`.eh_frame`); Itanium C++ ABI, "Exception Handling
//! Tables" (the language-specific data area, `.gcc_except_table`).

use super::code::Code;
use super::handlers::{Protected, protected_calls};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Register, UnwindContext, UnwindSection,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The register `rsp` in DWARF's numbering.
const STACK_POINTER: Register = Register(7);
/// Bytes of a return address.
const AT_ENTRY: i64 = 8;

/// The code that one entry of the unwind tables describes.
#[derive(Debug)]
pub struct UnwindEntry<'a> {
    /// First address.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// Calls whose exceptions are received.
    pub protected: Vec<Protected>,
    /// The stack is as deep at its start as behind a call: it can be a function of its own, and not only a part that was split off.
    pub starts_as_function: bool,
    entry: FrameDescriptionEntry<Slice<'a>>,
}

/// The unwind tables of a file.
pub struct Frames<'a> {
    /// Described code, ascending; none overlap.
    pub frames: Vec<UnwindEntry<'a>>,
    section: EhFrame<Slice<'a>>,
    bases: BaseAddresses,
}

impl<'a> Frames<'a> {
    /// Reads the tables; what is damaged in them is left out.
    pub fn read(code: &Code<'a>) -> Frames<'a> {
        let binary = code.binary;
        let (range, data) = binary.section(".eh_frame").unwrap_or((0..0, &[]));
        let text = binary.section(".text").map_or(0, |(text, _)| text.start);
        let got = binary.section(".got").map_or(0, |(got, _)| got.start);
        let bases = BaseAddresses::default().set_eh_frame(range.start).set_text(text).set_got(got);
        let section = EhFrame::new(data, LittleEndian);
        let mut all = Frames { frames: Vec::new(), section, bases };
        let mut entries = all.section.entries(&all.bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
            // Code that signal handlers return to has an entry from a byte before it, since unwinders look up return addresses less 1.
            let start = entry.initial_address().saturating_add(u64::from(entry.is_signal_trampoline()));
            let end = entry.initial_address().saturating_add(entry.len());
            let fits = code.section_at(start).is_some_and(|s| end <= s.range.end);
            if entry.len() == 0 || !fits || code.stub_ranges.iter().any(|r| r.contains(&start)) {
                continue;
            }
            let protected = entry.lsda().and_then(|p| pointer(code, p)).map_or_else(Vec::new, |at| protected_calls(code, at, start));
            all.frames.push(UnwindEntry { start, end, protected, starts_as_function: true, entry });
        }
        all.frames.sort_by_key(|f| (f.start, std::cmp::Reverse(f.end)));
        let mut end = 0;
        all.frames.retain(|f| {
            let is_separate = f.start >= end;
            end = end.max(f.end);
            is_separate
        });
        for at in 0..all.frames.len() {
            all.frames[at].starts_as_function = all.is_entry_depth(at, all.frames[at].start) != Some(false);
        }
        all
    }

    /// The entry whose code contains an address.
    pub fn at(&self, address: u64) -> Option<usize> {
        let behind = self.frames.partition_point(|f| f.start <= address);
        behind.checked_sub(1).filter(|&at| address < self.frames[at].end)
    }

    /// Whether the stack is as deep before an instruction as at a function's entry; `None` where the tables do not say.
    pub fn is_entry_depth(&self, frame: usize, address: u64) -> Option<bool> {
        let mut context = UnwindContext::new();
        let row = self.frames[frame].entry.unwind_info_for_address(&self.section, &self.bases, &mut context, address).ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Some(*register == STACK_POINTER && *offset == AT_ENTRY),
            CfaRule::Expression(_) => None,
        }
    }
}

fn pointer(code: &Code, pointer: gimli::Pointer) -> Option<u64> {
    match pointer {
        gimli::Pointer::Direct(at) => Some(at),
        gimli::Pointer::Indirect(at) => match code.word_at(at)? {
            super::code::CodeWord::Address(to) => Some(to),
            _ => None,
        },
    }
}
