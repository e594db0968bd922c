//! A hash map with a fast hash function for small keys: one multiplication per word, as in Firefox and rustc. Keys that were chosen to
//! collide would make the map slow, but not incorrect.

use std::hash::{BuildHasherDefault, Hasher};

/// A hash map that uses [`WordHasher`].
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// Hashes each word with one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordHasher(u64);

impl WordHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        // Hash tables use the highest and the lowest bits of a hash, but a multiplication mixes the lowest bits poorly.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.add(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }
}
