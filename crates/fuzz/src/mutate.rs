//! Mutations of inputs.

#[derive(Debug)]
pub struct Mutator {
    state: u64,
}

/// Byte values that readers are likely to treat as special cases.
const SPECIAL_BYTES: [u8; 12] = [0, 1, 2, 7, 8, 0x7f, 0x80, 0xff, b'0', b'9', b' ', b'\n'];
/// Numbers at or near the limits of integer types and floating-point types.
const EXTREME_NUMBERS: [&str; 8] =
    ["0", "1", "-1", "4294967295", "18446744073709551615", "9223372036854775808", "1e308", "0x7fffffffffffffff"];

impl Mutator {
    pub fn new(seed: u64) -> Mutator {
        Mutator { state: seed }
    }

    fn below(&mut self, limit: usize) -> usize {
        // This is a linear congruential generator with the constants of Knuth's MMIX.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % limit.max(1)
    }

    /// Returns a copy of a random input of the corpus with one to eight random mutations, cut to at most `max_size` bytes.
    pub fn mutated_input(&mut self, corpus: &[Vec<u8>], max_size: usize) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(8) {
            self.mutate_once(&mut input, corpus);
            input.truncate(max_size);
        }
        input
    }

    fn mutate_once(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len());
        let end = (at + 1 + self.below(64)).min(input.len());
        match self.below(9) {
            _ if input.is_empty() => input.push(SPECIAL_BYTES[self.below(SPECIAL_BYTES.len())]),
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = SPECIAL_BYTES[self.below(SPECIAL_BYTES.len())],
            2 => input[at] = self.below(256) as u8,
            3 => input.truncate(at),
            4 => drop(input.drain(at..end)),
            5 => {
                let piece = input[at..end].repeat(1 + self.below(40));
                drop(input.splice(at..at, piece));
            }
            6 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len());
                drop(input.splice(at..end, other[from..].iter().copied().take(256).collect::<Vec<_>>()));
            }
            7 => self.replace_number(input, at),
            _ => {
                let word = [0u64, u64::MAX, 1 << 31, 1 << 32, 1 << 63][self.below(5)].to_le_bytes();
                let size = [2, 4, 8][self.below(3)];
                input.iter_mut().skip(at).zip(&word[..size]).for_each(|(byte, new)| *byte = *new);
            }
        }
    }

    fn replace_number(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(begin) = input[at..].iter().position(u8::is_ascii_digit).map(|begin| at + begin) else { return };
        let end = input[begin..].iter().position(|b| !b.is_ascii_digit()).map_or(input.len(), |end| begin + end);
        let number = EXTREME_NUMBERS[self.below(EXTREME_NUMBERS.len())];
        drop(input.splice(begin..end, number.bytes()));
    }
}
