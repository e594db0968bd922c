//! Parses the section `.pseudo_probe` in the form that LLVM 22 writes (`MCPseudoProbe.h`). Numbers are encoded in LEB128. The body of a
//! function that is not inlined begins with a sentinel probe, whose eight bytes are a hash of the symbol to which offsets are relative. The
//! hash is skipped, because the function's ID also identifies this symbol.
//!
//! ```text
//! body     function u64 | number of probes | number of inlined bodies | probes | inlined bodies, each after its call's probe number
//! probe    number | byte: type 4 bits, attribute 3 bits, delta flag 1 bit | address | discriminator, if the attribute says so
//! address  signed delta from the previous probe, or eight bytes
//! ```

use gimli::{EndianSlice, LittleEndian, Reader};

const SENTINEL_FLAG: u8 = 2;
const DISCRIMINATOR_FLAG: u8 = 4;
/// Maximum nesting depth of inlined bodies. A section with deeper nesting is treated as corrupt.
const MAX_INLINE_DEPTH: u32 = 4096;

/// The probes in the body of a function, without those of functions that are inlined into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedBody {
    /// ID of the function.
    pub function: u64,
    /// Probes in code order, as pairs of the offset from the function's symbol and the probe number.
    pub probes: Vec<(u64, u64)>,
}

/// Parses the content of the section. Skips the bodies of inlined functions.
///
/// # Errors
/// Fails if the section is corrupt. The text says at which byte offset.
pub fn parse_pseudo_probes(bytes: &[u8]) -> Result<Vec<ProbedBody>, String> {
    let mut reader = EndianSlice::new(bytes, LittleEndian);
    let mut bodies = Vec::new();
    while !reader.is_empty() {
        let start = bytes.len() - reader.len();
        let body = parse_body(&mut reader, &mut 0, 0);
        bodies.push(body.ok_or_else(|| format!("the section .pseudo_probe is corrupt after byte {start}"))?);
    }
    Ok(bodies)
}

fn parse_body(reader: &mut EndianSlice<LittleEndian>, address: &mut i64, depth: u32) -> Option<ProbedBody> {
    let function = reader.read_u64().ok()?;
    let (count, inlined) = (reader.read_uleb128().ok()?, reader.read_uleb128().ok()?);
    let mut probes = Vec::new();
    for _ in 0..count {
        let number = reader.read_uleb128().ok()?;
        let flags = reader.read_u8().ok()?;
        let attribute = flags >> 4 & 7;
        if flags & 0x80 == 0 {
            reader.read_u64().ok()?;
            *address = 0;
        } else {
            *address = address.checked_add(reader.read_sleb128().ok()?)?;
        }
        if attribute & DISCRIMINATOR_FLAG != 0 {
            reader.read_uleb128().ok()?;
        }
        if attribute & SENTINEL_FLAG == 0 {
            probes.push((u64::try_from(*address).ok()?, number));
        }
    }
    for _ in 0..inlined {
        reader.read_uleb128().ok()?;
        (depth < MAX_INLINE_DEPTH).then_some(())?;
        parse_body(reader, address, depth + 1)?;
    }
    Some(ProbedBody { function, probes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LLVM 22's output for two functions: one has a probe at offset 2, and the other has probes at offsets 3, 8 and 13.
    const SAMPLE_SECTION: [u8; 52] = [
        0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x20, 0x25, 0x10, 0xc3, 0x90, 0x11, 0xc5, 0xbe, 0x70, 1, 0x80, 2, //
        0xcb, 4, 0xfb, 0x71, 0x1f, 1, 0, 0, 4, 0, 0, 0x20, 0x8f, 0xa1, 0x4c, 0xdd, 0x75, 0x4f, 0x91, 0xcc, 1, 0x80, 3, 2, 0x80, 5, 3, 0x80,
        5,
    ];

    #[test]
    fn bodies_of_llvm_22_are_read() {
        let expected = [
            ProbedBody { function: 0x2a, probes: vec![(2, 1)] },
            ProbedBody { function: 1234567890123, probes: vec![(3, 1), (8, 2), (13, 3)] },
        ];
        assert_eq!(parse_pseudo_probes(&SAMPLE_SECTION).unwrap(), expected);
    }

    #[test]
    fn corrupt_section_does_not_panic() {
        for end in 1..SAMPLE_SECTION.len() {
            let read = parse_pseudo_probes(&SAMPLE_SECTION[..end]);
            assert!(end == 23 || read.is_err(), "{end}");
        }
        for at in 0..SAMPLE_SECTION.len() {
            let mut bytes = SAMPLE_SECTION;
            bytes[at] ^= 0xff;
            let _ = parse_pseudo_probes(&bytes);
        }
    }
}
