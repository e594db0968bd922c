//! Language-specific data areas: which calls have their exceptions received, where, and whether any can pass by.
//!
//! Source: Itanium C++ ABI, "Exception Handling Tables": a header, the call sites, the chains of actions that they name, and, growing
//! downwards to them, the types that are caught, with the lists of types that may pass behind. C++ and Rust use the same tables; in
//! both, a pad without action cleans up, a type that is zero catches everything, and an empty list lets nothing pass.

use super::code::{Code, CodeWord};
use gimli::{EndianSlice, LittleEndian, Reader as _};

/// A call whose exceptions are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// First address of the calls.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// Where exceptions land.
    pub landing_pad: u64,
    /// No exception passes it by.
    pub always_lands: bool,
}

/// `DW_EH_PE_omit`.
const OMITTED: u8 = 0xff;

/// Actions of a chain that are looked at: a damaged table may be a circle.
const LONGEST: usize = 1000;

/// Reads the table of call sites of the area at an address; it ends where it is damaged.
pub fn protected_calls(code: &Code, at: u64, function: u64) -> Vec<Protected> {
    let mut found = Vec::new();
    let _ = read_call_sites(code, at, function, &mut found);
    found.retain(|p| code.is_code(p.landing_pad) && p.start < p.end);
    found
}

/// Where types are, if any are caught.
#[derive(Clone, Copy)]
struct Types {
    /// Behind the first one.
    end: u64,
    encoding: u8,
}

fn read_call_sites(code: &Code, at: u64, function: u64, found: &mut Vec<Protected>) -> Option<()> {
    let mut reader = Reader::at(code, at)?;
    let base = match reader.byte()? {
        OMITTED => function,
        encoding => reader.encoded(encoding)?,
    };
    let types = match reader.byte()? {
        OMITTED => None,
        encoding => {
            let offset = reader.uleb()?;
            Some(Types { end: reader.address().checked_add(offset)?, encoding })
        }
    };
    let encoding = reader.byte()?;
    let size = reader.uleb()?;
    let end = reader.address().checked_add(size)?;
    while reader.address() < end {
        let (start, length, landing_pad) = (reader.plain(encoding)?, reader.plain(encoding)?, reader.plain(encoding)?);
        let action = reader.uleb()?;
        if landing_pad != 0 {
            let start = function.wrapping_add(start);
            let always_lands = match action.checked_sub(1) {
                None => true,
                Some(offset) => receives_all(code, end.wrapping_add(offset), types).unwrap_or(false),
            };
            let landing_pad = base.wrapping_add(landing_pad);
            found.push(Protected { start, end: start.wrapping_add(length), landing_pad, always_lands });
        }
    }
    Some(())
}

/// Whether a chain of actions cleans up or catches everything; `None` where it is damaged.
fn receives_all(code: &Code, action: u64, types: Option<Types>) -> Option<bool> {
    let mut at = action;
    for _ in 0..LONGEST {
        let mut reader = Reader::at(code, at)?;
        let filter = reader.sleb()?;
        let receives = match filter {
            0 => true,
            1.. => is_zero(code, types?, filter as u64)?,
            // A list of the types that may pass; the one that is empty lets none pass.
            _ => Reader::at(code, types?.end.checked_add(filter.unsigned_abs() - 1)?)?.byte()? == 0,
        };
        if receives {
            return Some(true);
        }
        let from = reader.address();
        match reader.sleb()? {
            0 => return Some(false),
            next => at = from.wrapping_add_signed(next),
        }
    }
    None
}

/// Whether the type of a number is none.
fn is_zero(code: &Code, types: Types, number: u64) -> Option<bool> {
    let size = match types.encoding & 0x0f {
        0x00 | 0x04 | 0x0c => 8,
        0x02 | 0x0a => 2,
        0x03 | 0x0b => 4,
        _ => return None,
    };
    let at = types.end.checked_sub(number.checked_mul(size)?)?;
    match size {
        // A pointer that the loader fills in.
        8 => Some(matches!(code.word_at(at)?, CodeWord::Address(0))),
        _ => Some(Reader::at(code, at)?.plain(types.encoding)? == 0),
    }
}

struct Reader<'a> {
    rest: EndianSlice<'a, LittleEndian>,
    /// The address behind it.
    end: u64,
}

impl<'a> Reader<'a> {
    fn at(code: &Code<'a>, address: u64) -> Option<Self> {
        let bytes = code.binary.bytes_at(address)?;
        Some(Reader { rest: EndianSlice::new(bytes, LittleEndian), end: address.wrapping_add(bytes.len() as u64) })
    }

    fn address(&self) -> u64 {
        self.end.wrapping_sub(self.rest.len() as u64)
    }

    fn byte(&mut self) -> Option<u8> {
        self.rest.read_u8().ok()
    }

    fn uleb(&mut self) -> Option<u64> {
        self.rest.read_uleb128().ok()
    }

    fn sleb(&mut self) -> Option<i64> {
        self.rest.read_sleb128().ok()
    }

    /// A value of a pointer encoding (`DW_EH_PE_*`), whatever it is relative to.
    fn plain(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.rest.read_u64().ok(),
            0x01 => self.uleb(),
            0x02 => self.rest.read_u16().ok().map(u64::from),
            0x03 => self.rest.read_u32().ok().map(u64::from),
            0x0a => self.rest.read_i16().ok().map(|value| i64::from(value) as u64),
            0x0b => self.rest.read_i32().ok().map(|value| i64::from(value) as u64),
            _ => None,
        }
    }

    /// A pointer, absolute or relative to its own place.
    fn encoded(&mut self, encoding: u8) -> Option<u64> {
        let place = self.address();
        let value = self.plain(encoding)?;
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(value.wrapping_add(place)),
            _ => None,
        }
    }
}
