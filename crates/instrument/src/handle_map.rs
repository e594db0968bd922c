//! Maps keyed by LLVM handles, with a cheap hash.
//!
//! Every instruction of a unit is looked up several times, and the standard library's hash, which resists attackers, would dominate the
//! cost.

use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by handles, in insertion order.
pub type HandleMap<K, V> = indexmap::IndexMap<K, V, BuildHasherDefault<HandleHasher>>;

/// A multiplicative hash function for addresses.
#[derive(Default)]
pub struct HandleHasher(u64);

/// The golden ratio times 2^64, an odd number without a regular bit pattern.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for HandleHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, word: usize) {
        self.0 = (self.0.rotate_left(5) ^ word as u64).wrapping_mul(MULTIPLIER);
    }

    fn finish(&self) -> u64 {
        // Addresses are multiples of at least 8, so the lowest bits of the product are zero, but tables index by the lowest bits.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indexmap::IndexSet;
    use std::hash::Hash;

    fn hash(key: impl Hash) -> u64 {
        let mut hasher = HandleHasher::default();
        key.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn neighbouring_addresses_are_spread_over_a_table() {
        let at = |number: usize| std::ptr::without_provenance::<u8>(0x5555_0000_0000 + number * 64);
        let slots: IndexSet<u64> = (0..1024).map(|number| hash(at(number)) % 2048).collect();
        assert!(slots.len() > 700, "{}", slots.len());
        let pairs: IndexSet<u64> = (0..1024).map(|number| hash((at(number), at(number + 1))) % 2048).collect();
        assert!(pairs.len() > 700, "{}", pairs.len());
    }

    #[test]
    fn the_order_of_a_pair_matters() {
        let [one, other] = [64, 128].map(std::ptr::without_provenance::<u8>);
        assert_ne!(hash((one, other)), hash((other, one)));
    }
}
