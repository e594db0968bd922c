//! A fast hash for small keys: the finaliser of MurmurHash3, applied to each word. It is not secure against chosen keys, but keys are
//! numbers that the program assigns itself.

use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type BuildSymbolHasher = BuildHasherDefault<SymbolHasher>;

#[derive(Default)]
pub(crate) struct SymbolHasher(u64);

pub(crate) fn mix_bits(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

impl Hasher for SymbolHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix_bits(self.0.rotate_left(23) ^ word);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
