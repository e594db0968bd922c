//! A perfect hash of the numbers of known paths: `slot = (number * M) >> S`, with a multiplier M found by search.
//!
//! One multiplication, one shift and one comparison classify a path exactly, and the set of known paths is data. Multiplicative hashing
//! after Dietzfelbinger and others (1997). By the birthday bound, n keys rarely fit 2^k slots without a collision if n^2 is far above
//! 2^k, so tables grow with the square of the number of keys; even with some thousand multipliers tried, hundreds of keys take some ten
//! thousand slots.

use super::sequence::Shuffle;

/// Maximum number of slots of a table.
pub const MAX_SLOTS: u64 = 1 << 24;
/// Number of multiplications spent on a table size before it is doubled.
const WORK_PER_SIZE: usize = 1 << 21;

/// No multiplier was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no multiplier hashes {keys} known paths into {slots} slots without a collision: name fewer paths, or use the numbering ppp")]
pub struct NoHash {
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
    ///
    /// # Errors
    /// No multiplier was found for the largest table.
    pub fn from_keys(keys: &[u64]) -> Result<PerfectHash, NoHash> {
        let mut bits = keys.len().next_power_of_two().trailing_zeros().max(1);
        let mut random = Shuffle::default();
        // The try in which each slot was last taken, so that the array need not be cleared between tries.
        let mut taken: Vec<u32> = Vec::new();
        let mut time = 0;
        while 1 << bits <= MAX_SLOTS {
            taken.resize(1 << bits, 0);
            let shift = 64 - bits;
            for _ in 0..(WORK_PER_SIZE / keys.len().max(1)).max(4) {
                let multiplier = random.number() | 1;
                time += 1;
                let free = |k: &u64| std::mem::replace(&mut taken[(k.wrapping_mul(multiplier) >> shift) as usize], time) != time;
                if keys.iter().all(free) {
                    return Ok(PerfectHash::filled(keys, multiplier, shift));
                }
            }
            bits += 1;
        }
        Err(NoHash { keys: keys.len(), slots: MAX_SLOTS })
    }

    fn filled(keys: &[u64], multiplier: u64, shift: u32) -> PerfectHash {
        let mut table = PerfectHash { multiplier, shift, keys: vec![None; 1 << (64 - shift)] };
        for key in keys {
            let slot = table.slot(*key) as usize;
            table.keys[slot] = Some(*key);
        }
        table
    }

    /// The slot that a key hashes to, whether or not it is in the table.
    pub fn slot(&self, key: u64) -> u64 {
        key.wrapping_mul(self.multiplier) >> self.shift
    }

    /// The slot of a key; `None` if the key is not in the table.
    pub fn find(&self, key: u64) -> Option<u64> {
        let slot = self.slot(key);
        (self.keys[slot as usize] == Some(key)).then_some(slot)
    }

    /// The key in a slot; `None` if the slot is empty or does not exist.
    pub fn key(&self, slot: u64) -> Option<u64> {
        self.keys.get(usize::try_from(slot).ok()?).copied().flatten()
    }

    /// Number of slots, a power of two.
    pub fn slots(&self) -> u64 {
        self.keys.len() as u64
    }

    /// M and S of `slot = (key * M) >> S`.
    pub fn parameters(&self) -> (u64, u32) {
        (self.multiplier, self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_nothing_else_is() {
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
