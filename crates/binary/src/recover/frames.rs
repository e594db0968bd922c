//! What the unwind tables say: where functions' code begins and ends, where exceptions land, how deep the stack is.
//!
//! Compilers describe all code that they generate, also in stripped files, since exceptions, profilers and debuggers
//! need it. Sources: System V ABI, AMD64 supplement, section 3.7 (`.eh_frame`); Itanium C++ ABI, "Exception Handling
//! Tables" (the language-specific data area, `.gcc_except_table`).

use super::code::Code;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Register, UnwindContext, UnwindSection,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The register `rsp` in DWARF's numbering.
const STACK_POINTER: Register = Register(7);
/// Bytes of a return address.
const AT_ENTRY: i64 = 8;

/// A call whose exceptions are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// First address of the calls.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// Where exceptions land.
    pub landing_pad: u64,
}

/// The code that one entry of the unwind tables describes.
#[derive(Debug)]
pub struct Frame<'a> {
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
    pub frames: Vec<Frame<'a>>,
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
            let start = entry.initial_address();
            let end = start.saturating_add(entry.len());
            let fits = code.section_at(start).is_some_and(|s| end <= s.range.end);
            if entry.len() == 0 || !fits || code.stub_ranges.iter().any(|r| r.contains(&start)) {
                continue;
            }
            let protected = entry.lsda().and_then(|p| pointer(code, p)).map_or_else(Vec::new, |at| protected_calls(code, at, start));
            all.frames.push(Frame { start, end, protected, starts_as_function: true, entry });
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
            super::code::Word::Address(to) => Some(to),
            _ => None,
        },
    }
}

/// Reads the table of call sites of a language-specific data area; it ends where it is damaged.
fn protected_calls(code: &Code, at: u64, function: u64) -> Vec<Protected> {
    let mut found = Vec::new();
    let _ = read_call_sites(code, at, function, &mut found);
    found.retain(|p| code.is_code(p.landing_pad) && p.start < p.end);
    found
}

fn read_call_sites(code: &Code, at: u64, function: u64, found: &mut Vec<Protected>) -> Option<()> {
    let mut reader = Reader { rest: code.binary.bytes_at(at)?, address: at };
    let base = match reader.byte()? {
        OMITTED => function,
        encoding => reader.encoded(encoding)?,
    };
    if reader.byte()? != OMITTED {
        reader.uleb()?;
    }
    let encoding = reader.byte()?;
    let size = reader.uleb()?;
    let end = reader.address.checked_add(size)?;
    while reader.address < end {
        let (start, length, landing_pad) = (reader.plain(encoding)?, reader.plain(encoding)?, reader.plain(encoding)?);
        reader.uleb()?;
        if landing_pad != 0 {
            let start = function.wrapping_add(start);
            found.push(Protected { start, end: start.wrapping_add(length), landing_pad: base.wrapping_add(landing_pad) });
        }
    }
    Some(())
}

/// `DW_EH_PE_omit`.
const OMITTED: u8 = 0xff;

struct Reader<'a> {
    rest: &'a [u8],
    address: u64,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        self.address += N as u64;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[b]| b)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some(value)
    }

    /// A value of a pointer encoding (`DW_EH_PE_*`), whatever it is relative to.
    fn plain(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.take::<8>().map(u64::from_le_bytes),
            0x01 => self.uleb(),
            0x02 => self.take::<2>().map(|b| u64::from(u16::from_le_bytes(b))),
            0x03 => self.take::<4>().map(|b| u64::from(u32::from_le_bytes(b))),
            0x0a => self.take::<2>().map(|b| i64::from(i16::from_le_bytes(b)) as u64),
            0x0b => self.take::<4>().map(|b| i64::from(i32::from_le_bytes(b)) as u64),
            _ => None,
        }
    }

    /// A pointer, absolute or relative to its own place.
    fn encoded(&mut self, encoding: u8) -> Option<u64> {
        let place = self.address;
        let value = self.plain(encoding)?;
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(value.wrapping_add(place)),
            _ => None,
        }
    }
}
