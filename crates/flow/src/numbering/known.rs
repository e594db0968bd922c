//! A perfect hash of the Ball-Larus identities of known paths: `slot = (id * M) >> S` with a searched multiplier.
//!
//! One multiplication, one shift, one comparison classify a path exactly, and the known set is data. Multiplicative
//! hashing after Dietzfelbinger and others (1997); multipliers are odd numbers from a fixed sequence. A table of 2^k
//! slots holds n keys without a collision by chance if n^2 is not far above 2^k, so the table grows with the square of
//! the keys once some thousand multipliers were tried; a table of hundreds of keys takes some ten thousand slots. With
//! [`MOST_SLOTS`] reached, what is left is an error.

use super::sequence::Shuffle;

/// The largest table.
pub const MOST_SLOTS: u64 = 1 << 24;
/// Multiplications spent on each size before the table is doubled.
const WORK: usize = 1 << 21;

/// No multiplier was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no multiplier hashes the {keys} known paths without a collision into {slots} slots: name fewer paths, or take ppp")]
pub struct NoHash {
    /// Number of keys.
    pub keys: usize,
    /// Number of slots that were tried last.
    pub slots: u64,
}

/// A table of keys without collisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfectHash {
    multiplier: u64,
    shift: u32,
    keys: Vec<Option<u64>>,
}

impl PerfectHash {
    /// A table of these keys, no two equal.
    ///
    /// # Errors
    /// No multiplier was found for the largest table.
    pub fn from_keys(keys: &[u64]) -> Result<PerfectHash, NoHash> {
        let mut bits = keys.len().next_power_of_two().trailing_zeros().max(1);
        let mut random = Shuffle::default();
        // Times at which a slot was last taken: an array that need not be emptied between tries.
        let mut taken: Vec<u32> = Vec::new();
        let mut time = 0;
        while 1 << bits <= MOST_SLOTS {
            taken.resize(1 << bits, 0);
            let shift = 64 - bits;
            for _ in 0..(WORK / keys.len().max(1)).max(4) {
                let multiplier = random.number() | 1;
                time += 1;
                let free = |k: &u64| std::mem::replace(&mut taken[(k.wrapping_mul(multiplier) >> shift) as usize], time) != time;
                if keys.iter().all(free) {
                    return Ok(PerfectHash::filled(keys, multiplier, shift));
                }
            }
            bits += 1;
        }
        Err(NoHash { keys: keys.len(), slots: MOST_SLOTS })
    }

    fn filled(keys: &[u64], multiplier: u64, shift: u32) -> PerfectHash {
        let mut table = PerfectHash { multiplier, shift, keys: vec![None; 1 << (64 - shift)] };
        for key in keys {
            let slot = table.slot(*key) as usize;
            table.keys[slot] = Some(*key);
        }
        table
    }

    /// Where a key would be.
    pub fn slot(&self, key: u64) -> u64 {
        key.wrapping_mul(self.multiplier) >> self.shift
    }

    /// The slot of a key, if the table has it.
    pub fn find(&self, key: u64) -> Option<u64> {
        let slot = self.slot(key);
        (self.keys[slot as usize] == Some(key)).then_some(slot)
    }

    /// The key in a slot.
    pub fn key(&self, slot: u64) -> Option<u64> {
        self.keys.get(usize::try_from(slot).ok()?).copied().flatten()
    }

    /// Number of slots: a power of two.
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
    fn every_key_is_found_and_nothing_else() {
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
    fn tables_stay_near_what_chance_gives() {
        let keys: Vec<u64> = (0..20).map(|i| i * 37 + 5).collect();
        assert!(PerfectHash::from_keys(&keys).unwrap().slots() <= 64);
    }
}
