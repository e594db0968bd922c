//! Replacement policies of the hot path table: what a full set does with a path that it does not contain (section 5.4).
//!
//! As published, the least frequently used entry is replaced, and the new one starts with the incoming count (`lfu`). Then the newest entry
//! is usually replaced next, so a path that becomes hot late is hardly ever kept. The other policies apply algorithms for frequent items in
//! streams to each set; none of them needs more storage.

use crate::names::names;

/// A replacement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// Replaces the least frequently used entry, as published.
    #[default]
    Lfu,
    /// Replaces the least recently used entry.
    Lru,
    /// Replaces a random entry.
    Random,
    /// Replaces the least frequently used entry, and adds its count to the new one (Metwally, Agrawal and El Abbadi, *Efficient computation
    /// of frequent and top-k elements in data streams*, ICDT 2005).
    SpaceSaving,
    /// Like `space-saving`, but only with the probability of the incoming count over the sum of both counts (Ben-Basat and others,
    /// *Randomized admission policy for efficient top-k and frequency estimation*, INFOCOM 2017).
    RandomizedAdmission,
    /// Decreases the count of the least frequently used entry, with a probability that falls with that count, and replaces the entry at
    /// zero (Yang, Zhang, Li et al., *HeavyKeeper: an accurate algorithm for finding top-k elephant flows*, USENIX ATC 2018).
    Decay,
}

names! {
    Replacement {
        Lfu "lfu", Lru "lru", Random "random", SpaceSaving "space-saving", RandomizedAdmission "rap", Decay "decay"
    }
}

/// A random number generator for hardware: xorshift (Marsaglia, 2003). The seed is fixed, so results are reproducible.
#[derive(Clone, Debug)]
pub struct Generator(u64);

impl Default for Generator {
    fn default() -> Generator {
        Generator(0x2545_f491_4f6c_dd1d)
    }
}

impl Generator {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}
