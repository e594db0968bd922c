//! Reads which version of LLVM wrote a bitcode file.
//!
//! An LLVM release reads bitcode from its own and from earlier major versions. It does not always reject bitcode from later versions, so
//! trodden compares the versions first. Since LLVM 4, every bitcode file begins with an identification block, which contains the version as
//! a string. LLVM's "LLVM Bitcode File Format" describes the encoding.

const BITCODE_MAGIC: [u8; 4] = *b"BC\xc0\xde";
/// The optional wrapper header before bitcode: its first bytes, and its size.
const WRAPPER_MAGIC_AND_SIZE: ([u8; 4], usize) = (*b"\xde\xc0\x17\x0b", 20);
/// IDs of the identification block and of the record in it that names the producer.
const IDENTIFICATION_BLOCK: u64 = 13;
const PRODUCER_RECORD: u64 = 1;
const MAX_RECORD_OPERANDS: usize = 256;

/// Returns true if the bytes are LLVM bitcode, with or without a wrapper header.
pub fn is_bitcode(bytes: &[u8]) -> bool {
    bytes.starts_with(&BITCODE_MAGIC) || bytes.starts_with(&WRAPPER_MAGIC_AND_SIZE.0)
}

/// Returns the major version of the LLVM that wrote a bitcode file, given at least the first kilobyte of the file. `None` if the bytes are
/// not bitcode, or if they name a producer other than LLVM.
pub fn producer_major(bytes: &[u8]) -> Option<u32> {
    let start = if bytes.starts_with(&WRAPPER_MAGIC_AND_SIZE.0) { WRAPPER_MAGIC_AND_SIZE.1 } else { 0 };
    let text = read_producer(BitReader { bytes: bytes.get(start..)?.strip_prefix(&BITCODE_MAGIC)?, at: 0 })?;
    text.strip_prefix("LLVM")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// How an operand of a record is encoded.
#[derive(Clone, Copy)]
enum OperandEncoding {
    Literal(u64),
    Fixed(u32),
    Variable(u32),
    /// A number of operands, followed by that many operands in the next encoding of the list.
    Array,
    Character,
}

fn read_producer(mut bits: BitReader) -> Option<String> {
    const ENTER_BLOCK: u64 = 1;
    const DEFINE_ABBREVIATION: u64 = 2;
    const UNABBREVIATED_RECORD: u64 = 3;
    if bits.read_fixed_width(2)? != ENTER_BLOCK || bits.read_variable_width(8)? != IDENTIFICATION_BLOCK {
        return None;
    }
    let width = u32::try_from(bits.read_variable_width(4)?).ok()?;
    bits.skip_to_32_bit_boundary();
    bits.read_fixed_width(32)?;
    let mut abbreviations: Vec<Vec<OperandEncoding>> = Vec::new();
    loop {
        let record = match bits.read_fixed_width(width)? {
            DEFINE_ABBREVIATION => {
                abbreviations.push(bits.read_abbreviation()?);
                continue;
            }
            UNABBREVIATED_RECORD => {
                let (code, count) = (bits.read_variable_width(6)?, bits.read_variable_width(6)?);
                let operands = (0..count.min(MAX_RECORD_OPERANDS as u64)).map(|_| bits.read_variable_width(6));
                [Some(code)].into_iter().chain(operands).collect::<Option<Vec<u64>>>()?
            }
            id => bits.read_abbreviated_record(abbreviations.get(usize::try_from(id.checked_sub(4)?).ok()?)?)?,
        };
        if let [PRODUCER_RECORD, text @ ..] = record.as_slice() {
            return text.iter().map(|c| u8::try_from(*c).ok().map(char::from)).collect();
        }
    }
}

/// A reader of bits, starting with the lowest bit of each byte.
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    fn read_fixed_width(&mut self, width: u32) -> Option<u64> {
        if width > 64 {
            return None;
        }
        let mut value = 0;
        for bit in 0..width {
            let byte = self.bytes.get(self.at / 8)?;
            value |= u64::from(byte >> (self.at % 8) & 1) << bit;
            self.at += 1;
        }
        Some(value)
    }

    /// Reads an integer that is encoded in groups of `width` bits. The highest bit of a group is set if another group follows.
    fn read_variable_width(&mut self, width: u32) -> Option<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let group = self.read_fixed_width(width)?;
            let more = 1 << width.checked_sub(1)?;
            value |= (group & (more - 1)).checked_shl(shift)?;
            if group & more == 0 {
                return Some(value);
            }
            shift += width - 1;
        }
    }

    fn skip_to_32_bit_boundary(&mut self) {
        self.at = self.at.next_multiple_of(32);
    }

    fn read_abbreviation(&mut self) -> Option<Vec<OperandEncoding>> {
        let count = self.read_variable_width(5)?;
        let one = |bits: &mut Self| {
            if bits.read_fixed_width(1)? == 1 {
                return Some(OperandEncoding::Literal(bits.read_variable_width(8)?));
            }
            let width = |bits: &mut Self| u32::try_from(bits.read_variable_width(5)?).ok();
            Some(match bits.read_fixed_width(3)? {
                1 => OperandEncoding::Fixed(width(bits)?),
                2 => OperandEncoding::Variable(width(bits)?),
                3 => OperandEncoding::Array,
                4 => OperandEncoding::Character,
                _ => return None,
            })
        };
        (0..count.min(MAX_RECORD_OPERANDS as u64)).map(|_| one(self)).collect()
    }

    fn read_abbreviated_record(&mut self, encodings: &[OperandEncoding]) -> Option<Vec<u64>> {
        let mut values = Vec::new();
        let mut encodings = encodings.iter();
        while let Some(encoding) = encodings.next() {
            match encoding {
                OperandEncoding::Array => {
                    let (count, element) = (self.read_variable_width(6)?, encodings.next()?);
                    for _ in 0..count.min(MAX_RECORD_OPERANDS as u64) {
                        values.push(self.read_scalar(*element)?);
                    }
                }
                scalar => values.push(self.read_scalar(*scalar)?),
            }
        }
        Some(values)
    }

    fn read_scalar(&mut self, encoding: OperandEncoding) -> Option<u64> {
        const CHARACTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
        match encoding {
            OperandEncoding::Literal(value) => Some(value),
            OperandEncoding::Fixed(width) => self.read_fixed_width(width),
            OperandEncoding::Variable(width) => self.read_variable_width(width),
            OperandEncoding::Character => Some(CHARACTERS[self.read_fixed_width(6)? as usize].into()),
            OperandEncoding::Array => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of bitcode files, as clang 19.1.7 and rustc 1.95.0 wrote them.
    const CLANG_BITCODE: &[u8] =
        b"BC\xc0\xde\x35\x14\x00\x00\x05\x00\x00\x00\x62\x0c\x30\x24\x4a\x59\xbe\x66\xdd\xfb\xb5\xbf\x0b\x51\x80\x4c\x01\x00\x00\x00";
    const RUSTC_BITCODE: &[u8] = b"BC\xc0\xde\x35\x14\x00\x00\x0e\x00\x00\x00\x62\x0c\x30\x1c\x41\xc7\x0a\xac\x60\x0b\xad\x20\x07\x72\xe0\
        \x06\x71\xe0\x06\x72\xd0\x06\xf2\x50\x0f\xf3\x40\x0f\x6d\x10\x07\x6e\x90\x07\x75\xe0\x06\x70\xd0\x06\xf3\x40\x0f\xe1\x20\x0e\
        \xec\x50\x0e\x42\x14\x20\x53\x00\x00\x00";

    #[test]
    fn producer_is_read_from_both_record_encodings() {
        assert_eq!((producer_major(CLANG_BITCODE), producer_major(RUSTC_BITCODE)), (Some(19), Some(22)));
        let wrapped = [&WRAPPER_MAGIC_AND_SIZE.0[..], &[0; 16], CLANG_BITCODE].concat();
        assert!(is_bitcode(&wrapped) && producer_major(&wrapped) == Some(19));
    }

    #[test]
    fn truncated_or_foreign_bytes_have_no_producer() {
        assert_eq!((producer_major(b"\x7fELF"), is_bitcode(b"\x7fELF"), producer_major(b"")), (None, false, None));
        for length in 0..RUSTC_BITCODE.len() - 20 {
            assert_eq!(producer_major(&RUSTC_BITCODE[..length]), None, "{length}");
        }
        for at in 4..RUSTC_BITCODE.len() {
            for bit in 0..8 {
                let mut changed = RUSTC_BITCODE.to_vec();
                changed[at] ^= 1 << bit;
                // Any result is correct, but reading must not panic.
                let _ = producer_major(&changed);
            }
        }
    }
}
