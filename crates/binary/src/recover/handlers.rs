//! Reads language-specific data areas (LSDAs) of unwind tables: the landing pads of calls, and whether exceptions can bypass them.
//!
//! Source: Itanium C++ ABI, "Exception Handling Tables". An LSDA consists of a header, the call sites, their chains of actions, the types
//! caught (which grow downwards from the end of the table), and exception specifications. C++ and Rust use the same tables. In both, a pad
//! without an action is a cleanup, a null type catches everything, and an empty specification lets no exception pass.

use super::code::{CodeWord, FileCode};
use gimli::{EndianSlice, LittleEndian, Reader as _};

/// A range of code whose calls have a landing pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectedRange {
    pub start: u64,
    pub end: u64,
    pub landing_pad: u64,
    /// Whether every exception that a call throws reaches the landing pad.
    pub always_lands: bool,
}

/// `DW_EH_PE_omit`.
const OMITTED_ENCODING: u8 = 0xff;

/// Maximum number of actions that are followed in a chain. In a corrupt table, a chain may be cyclic.
const MAX_ACTION_RECORDS: usize = 1000;

/// Reads the call sites with landing pads from the LSDA at an address. If the LSDA is corrupt, returns those before the error.
pub fn read_protected_ranges(code: &FileCode, at: u64, function: u64) -> Vec<ProtectedRange> {
    let mut found = Vec::new();
    let _ = read_call_sites(code, at, function, &mut found);
    found.retain(|p| code.is_code(p.landing_pad) && p.start < p.end);
    found
}

/// The table of types that handlers catch.
#[derive(Clone, Copy)]
struct CaughtTypes {
    /// Address of the end of the table. Type `n`, counted from 1, is the `n`-th entry before the end.
    end: u64,
    encoding: u8,
}

fn read_call_sites(code: &FileCode, at: u64, function: u64, found: &mut Vec<ProtectedRange>) -> Option<()> {
    let mut reader = HandlerReader::at_address(code, at)?;
    let base = match reader.read_byte()? {
        OMITTED_ENCODING => function,
        encoding => reader.read_pointer(encoding)?,
    };
    let types = match reader.read_byte()? {
        OMITTED_ENCODING => None,
        encoding => {
            let offset = reader.read_uleb()?;
            Some(CaughtTypes { end: reader.address().checked_add(offset)?, encoding })
        }
    };
    let encoding = reader.read_byte()?;
    let size = reader.read_uleb()?;
    let end = reader.address().checked_add(size)?;
    while reader.address() < end {
        let (start, length, landing_pad) =
            (reader.read_encoded_value(encoding)?, reader.read_encoded_value(encoding)?, reader.read_encoded_value(encoding)?);
        let action = reader.read_uleb()?;
        if landing_pad != 0 {
            let start = function.wrapping_add(start);
            let always_lands = match action.checked_sub(1) {
                None => true,
                Some(offset) => handles_every_exception(code, end.wrapping_add(offset), types).unwrap_or(false),
            };
            let landing_pad = base.wrapping_add(landing_pad);
            found.push(ProtectedRange { start, end: start.wrapping_add(length), landing_pad, always_lands });
        }
    }
    Some(())
}

/// Returns true if a chain of actions handles every exception, because it contains a cleanup or catches everything. Returns `None` if the
/// chain is corrupt.
fn handles_every_exception(code: &FileCode, action: u64, types: Option<CaughtTypes>) -> Option<bool> {
    let mut at = action;
    for _ in 0..MAX_ACTION_RECORDS {
        let mut reader = HandlerReader::at_address(code, at)?;
        let filter = reader.read_sleb()?;
        let receives = match filter {
            0 => true,
            1.. => is_null_type(code, types?, filter as u64)?,
            // The filter is the offset of a list of types that may pass. An empty list lets no exception pass.
            _ => HandlerReader::at_address(code, types?.end.checked_add(filter.unsigned_abs() - 1)?)?.read_byte()? == 0,
        };
        if receives {
            return Some(true);
        }
        let from = reader.address();
        match reader.read_sleb()? {
            0 => return Some(false),
            next => at = from.wrapping_add_signed(next),
        }
    }
    None
}

/// Returns true if the type with a number is null, which catches every exception. Returns `None` if the table is corrupt.
fn is_null_type(code: &FileCode, types: CaughtTypes, number: u64) -> Option<bool> {
    let size = match types.encoding & 0x0f {
        0x00 | 0x04 | 0x0c => 8,
        0x02 | 0x0a => 2,
        0x03 | 0x0b => 4,
        _ => return None,
    };
    let at = types.end.checked_sub(number.checked_mul(size)?)?;
    match size {
        // The entry is a pointer, which the loader may relocate.
        8 => Some(matches!(code.word_at(at)?, CodeWord::Address(0))),
        _ => Some(HandlerReader::at_address(code, at)?.read_encoded_value(types.encoding)? == 0),
    }
}

struct HandlerReader<'a> {
    rest: EndianSlice<'a, LittleEndian>,
    /// Address after the last byte of `rest`.
    end: u64,
}

impl<'a> HandlerReader<'a> {
    fn at_address(code: &FileCode<'a>, address: u64) -> Option<Self> {
        let bytes = code.binary.bytes_at(address)?;
        Some(HandlerReader { rest: EndianSlice::new(bytes, LittleEndian), end: address.wrapping_add(bytes.len() as u64) })
    }

    fn address(&self) -> u64 {
        self.end.wrapping_sub(self.rest.len() as u64)
    }

    fn read_byte(&mut self) -> Option<u8> {
        self.rest.read_u8().ok()
    }

    fn read_uleb(&mut self) -> Option<u64> {
        self.rest.read_uleb128().ok()
    }

    fn read_sleb(&mut self) -> Option<i64> {
        self.rest.read_sleb128().ok()
    }

    /// Reads a value in a pointer encoding (`DW_EH_PE_*`). Does not add the base to which the value may be relative.
    fn read_encoded_value(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.rest.read_u64().ok(),
            0x01 => self.read_uleb(),
            0x02 => self.rest.read_u16().ok().map(u64::from),
            0x03 => self.rest.read_u32().ok().map(u64::from),
            0x0a => self.rest.read_i16().ok().map(|value| i64::from(value) as u64),
            0x0b => self.rest.read_i32().ok().map(|value| i64::from(value) as u64),
            _ => None,
        }
    }

    /// Reads a pointer, which must be absolute or relative to its own address.
    fn read_pointer(&mut self, encoding: u8) -> Option<u64> {
        let own_address = self.address();
        let value = self.read_encoded_value(encoding)?;
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(value.wrapping_add(own_address)),
            _ => None,
        }
    }
}
