//! Numbers in files: LEB128, and zigzag for differences.

/// Maps a difference to an unsigned number, such that small absolute values yield small numbers.
pub fn zigzag_encode(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64) >> 63) as u64
}

/// Appends a number in LEB128.
#[inline]
pub fn push_number(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// The unread input. All methods return `None` at its end or on malformed input.
#[derive(Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl Cursor<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub fn difference(&mut self) -> Option<u64> {
        let number = self.number()?;
        Some((number >> 1) ^ (number & 1).wrapping_neg())
    }

    pub fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}
