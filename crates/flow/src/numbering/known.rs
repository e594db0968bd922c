//! A perfect hash of the numbers of known paths: `slot = (number * M) >> S`. A search finds the multiplier M.
//!
//! A multiplication, a shift and a comparison with the number in the slot exactly determine whether a path is known, and the set of known
//! paths is a table. The hash function is by Dietzfelbinger and others (1997). By the birthday bound, n keys are unlikely to have different
//! slots among 2^k unless 2^k is of the order of n^2, so tables grow with the square of the number of keys: hundreds of keys take about ten
//! thousand slots, although thousands of multipliers are tried.

use super::sequence::ShuffleRng;

pub const MAX_HASH_SLOTS: u64 = 1 << 24;
/// Number of multiplications that are tried with one table size before the size is doubled.
const MAX_MULTIPLICATIONS_PER_TABLE_SIZE: usize = 1 << 21;

/// No multiplier without collisions was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found no hash function without collisions for {keys} known paths in {slots} slots. Select fewer paths, or use --scheme ppp")]
pub struct NoPerfectHashError {
    /// Number of keys.
    pub keys: usize,
    /// Number of slots of the largest table that was tried.
    pub slots: u64,
}

/// A hash table without collisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfectHash {
    multiplier: u64,
    shift: u32,
    keys: Vec<Option<u64>>,
}

impl PerfectHash {
    /// Builds a table of distinct keys.
    pub fn from_keys(keys: &[u64]) -> Result<PerfectHash, NoPerfectHashError> {
        let mut bits = keys.len().next_power_of_two().trailing_zeros().max(1);
        let mut random = ShuffleRng::default();
        // For each slot, the attempt that last used it, so that the vector does not have to be cleared between attempts.
        let mut taken: Vec<u32> = Vec::new();
        let mut time = 0;
        while 1 << bits <= MAX_HASH_SLOTS {
            taken.resize(1 << bits, 0);
            let shift = 64 - bits;
            for _ in 0..(MAX_MULTIPLICATIONS_PER_TABLE_SIZE / keys.len().max(1)).max(4) {
                let multiplier = random.number() | 1;
                time += 1;
                let free = |k: &u64| std::mem::replace(&mut taken[(k.wrapping_mul(multiplier) >> shift) as usize], time) != time;
                if keys.iter().all(free) {
                    return Ok(PerfectHash::place_keys(keys, multiplier, shift));
                }
            }
            bits += 1;
        }
        Err(NoPerfectHashError { keys: keys.len(), slots: MAX_HASH_SLOTS })
    }

    fn place_keys(keys: &[u64], multiplier: u64, shift: u32) -> PerfectHash {
        let mut table = PerfectHash { multiplier, shift, keys: vec![None; 1 << (64 - shift)] };
        for key in keys {
            let slot = table.slot(*key) as usize;
            table.keys[slot] = Some(*key);
        }
        table
    }

    /// Returns the slot to which a key hashes. The key does not have to be in the table.
    pub fn slot(&self, key: u64) -> u64 {
        key.wrapping_mul(self.multiplier) >> self.shift
    }

    /// Returns the slot of a key, or `None` if the key is not in the table.
    pub fn find(&self, key: u64) -> Option<u64> {
        let slot = self.slot(key);
        (self.keys[slot as usize] == Some(key)).then_some(slot)
    }

    /// Returns the key in a slot, or `None` if the slot is empty or does not exist.
    pub fn key(&self, slot: u64) -> Option<u64> {
        self.keys.get(usize::try_from(slot).ok()?).copied().flatten()
    }

    /// Returns the number of slots, a power of two.
    pub fn slots(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Returns the parameters M and S of `slot = (key * M) >> S`.
    pub fn parameters(&self) -> (u64, u32) {
        (self.multiplier, self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_keys_are_found() {
        for count in [1u64, 2, 3, 20, 250, 1000] {
            let keys: Vec<u64> = (0..count).map(|i| i * i * 7919 + i % 3).collect();
            let table = PerfectHash::from_keys(&keys).unwrap();
            let slots: std::collections::BTreeSet<u64> = keys.iter().map(|k| table.find(*k).unwrap()).collect();
            assert_eq!(slots.len(), keys.len());
            assert!(slots.iter().all(|s| keys.contains(&table.key(*s).unwrap())));
            assert!((0..20_000).filter(|k| !keys.contains(k)).all(|k| table.find(k).is_none()));
        }
    }

    #[test]
    fn tables_of_few_keys_are_small() {
        let keys: Vec<u64> = (0..20).map(|i| i * 37 + 5).collect();
        assert!(PerfectHash::from_keys(&keys).unwrap().slots() <= 64);
    }
}
