//! Replacement policies of the hot path table: which entry a full set gives up for a path that it does not contain, if any (section 5.4).
//!
//! In the published policy (`lfu`), the new path replaces the least frequently used entry and starts with the incoming count. The newest
//! entry is then usually the next to be replaced, so the table rarely retains a path that becomes hot late. `lru` and `random` are the
//! classic cache policies. The others are streaming algorithms for frequent items, applied to each set. Only `lru` needs more storage.

use crate::names::names;

/// How a full set of the hot path table makes room for a new path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplacementPolicy {
    /// Replaces the least frequently used entry; the published policy.
    #[default]
    Lfu,
    /// Replaces the least recently used entry.
    Lru,
    /// Replaces a random entry.
    Random,
    /// Replaces the least frequently used entry, and adds its count to the new one (Metwally, Agrawal and El Abbadi, *Efficient computation
    /// of frequent and top-k elements in data streams*, ICDT 2005).
    SpaceSaving,
    /// Like `space-saving`, but replaces the entry only with a probability of incoming count / (incoming count + entry's count) (Ben-Basat
    /// and others, *Randomized admission policy for efficient top-k and frequency estimation*, INFOCOM 2017).
    RandomizedAdmission,
    /// Decreases the count of the least frequently used entry, with a probability that falls as the count grows, and replaces the entry
    /// when the count reaches zero (Yang, Zhang, Li et al., *HeavyKeeper: an accurate algorithm for finding top-k elephant flows*, USENIX
    /// ATC 2018).
    Decay,
}

names! {
    ReplacementPolicy {
        Lfu "lfu", Lru "lru", Random "random", SpaceSaving "space-saving", RandomizedAdmission "rap", Decay "decay"
    }
}

/// A random number generator that is simple to build in hardware: xorshift (Marsaglia, 2003). The seed is fixed, so results are
/// reproducible.
#[derive(Clone, Debug)]
pub struct XorshiftGenerator(u64);

impl Default for XorshiftGenerator {
    fn default() -> XorshiftGenerator {
        XorshiftGenerator(0x2545_f491_4f6c_dd1d)
    }
}

impl XorshiftGenerator {
    pub fn draw_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw_number()) * u128::from(bound)) >> 64) as u64
    }
}
