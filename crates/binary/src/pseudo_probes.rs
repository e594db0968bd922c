//! The section `.pseudo_probe` as LLVM 22 writes it.
//!
//! ```text
//! body     function u64 | number of probes | number of inlined bodies | probes | inlined bodies, each after its call's probe number
//! probe    number | byte: type 4 bits, attribute 3 bits, whether a distance follows 1 bit | address | discriminator, by attribute
//! address  distance from the probe before (signed); or eight bytes
//! ```
//! Numbers are LEB128. A body that is not inlined begins with a sentinel: a probe whose eight bytes name the symbol
//! from which distances count, by the hash of its name. That name is known here otherwise, so the hash is not needed.
//! Source: LLVM's `MCPseudoProbe.h`.

/// Attribute of a sentinel.
const SENTINEL: u8 = 2;
/// Attribute of a probe with a discriminator.
const DISCRIMINATOR: u8 = 4;
/// Bodies inlined deeper than this are damage.
const DEEPEST: u32 = 4096;

/// A function that is not inlined, with its own probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedBody {
    /// The function's identifier.
    pub function: u64,
    /// Its probes in the order of the code: distance from the function's symbol, number.
    pub probes: Vec<(u64, u64)>,
}

/// Reads a section; what is inlined is passed over.
///
/// # Errors
/// Says at which byte it makes no sense.
pub fn read(bytes: &[u8]) -> Result<Vec<ProbedBody>, String> {
    let mut reader = Reader { bytes, at: 0 };
    let mut bodies = Vec::new();
    while reader.at < bytes.len() {
        let start = reader.at;
        let mut address = 0;
        let body = reader.body(&mut address, 0);
        bodies.push(body.ok_or_else(|| format!("the section .pseudo_probe makes no sense behind byte {start}"))?);
    }
    Ok(bodies)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn body(&mut self, address: &mut i64, depth: u32) -> Option<ProbedBody> {
        let function = self.word()?;
        let (count, inlined) = (self.unsigned()?, self.unsigned()?);
        let mut probes = Vec::new();
        for _ in 0..count {
            let number = self.unsigned()?;
            let flags = self.byte()?;
            let attribute = flags >> 4 & 7;
            if flags & 0x80 == 0 {
                self.word()?;
                *address = 0;
            } else {
                *address = address.checked_add(self.signed()?)?;
            }
            if attribute & DISCRIMINATOR != 0 {
                self.unsigned()?;
            }
            if attribute & SENTINEL == 0 {
                probes.push((u64::try_from(*address).ok()?, number));
            }
        }
        for _ in 0..inlined {
            self.unsigned()?;
            (depth < DEEPEST).then_some(())?;
            self.body(address, depth + 1)?;
        }
        Some(ProbedBody { function, probes })
    }

    fn byte(&mut self) -> Option<u8> {
        self.at += 1;
        self.bytes.get(self.at - 1).copied()
    }

    fn word(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.at..self.at + 8)?;
        self.at += 8;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn unsigned(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    fn signed(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0i64, 0);
        loop {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                let sign = byte & 0x40 != 0 && shift < 64;
                return Some(if sign { value | -1i64 << shift } else { value });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What LLVM 22 made of a function with three probes at 3, 8 and 13, and of one with a probe at 2.
    const SECTION: [u8; 52] = [
        0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x20, 0x25, 0x10, 0xc3, 0x90, 0x11, 0xc5, 0xbe, 0x70, 1, 0x80, 2, //
        0xcb, 4, 0xfb, 0x71, 0x1f, 1, 0, 0, 4, 0, 0, 0x20, 0x8f, 0xa1, 0x4c, 0xdd, 0x75, 0x4f, 0x91, 0xcc, 1, 0x80, 3, 2, 0x80, 5, 3, 0x80,
        5,
    ];

    #[test]
    fn bodies_are_read() {
        let expected = [
            ProbedBody { function: 0x2a, probes: vec![(2, 1)] },
            ProbedBody { function: 1234567890123, probes: vec![(3, 1), (8, 2), (13, 3)] },
        ];
        assert_eq!(read(&SECTION).unwrap(), expected);
    }

    #[test]
    fn damage_is_no_panic() {
        for end in 1..SECTION.len() {
            let read = read(&SECTION[..end]);
            assert!(end == 23 || read.is_err(), "{end}");
        }
        for at in 0..SECTION.len() {
            let mut bytes = SECTION;
            bytes[at] ^= 0xff;
            let _ = read(&bytes);
        }
    }
}
