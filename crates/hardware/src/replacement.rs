//! What a full set of the hot path table does about a path that it does not hold (section 5.4).
//!
//! Published: the least frequently used entry goes, and the new one starts with the incoming count (`lfu`). Then the
//! entry that came last is mostly the next to go, and a path that becomes hot late has to be lucky. Other policies are
//! algorithms for frequent items of streams, in each set by itself; none stores more than the published table does.
//!
//! | policy | source |
//! |---|---|
//! | `space-saving` | Metwally, Agrawal, El Abbadi, *Efficient computation of frequent and top-k elements in data streams*, ICDT 2005 |
//! | `rap` | Ben-Basat and others, *Randomized admission policy for efficient top-k and frequency estimation*, INFOCOM 2017 |
//! | `decay` | Yang, Zhang, Li et al., *HeavyKeeper: an accurate algorithm for finding top-k elephant flows*, USENIX ATC 2018 |

use crate::names::names;

/// A policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// The least frequently used entry goes: as published.
    #[default]
    Lfu,
    /// The least recently used entry goes.
    Lru,
    /// Any entry goes.
    Random,
    /// The least frequently used entry goes, and the new one inherits its count.
    SpaceSaving,
    /// As `space-saving`, but only with probability of the incoming count over the sum of both.
    RandomizedAdmission,
    /// The incoming count wears the least frequently used entry down, with a probability that falls with that one's count; at zero it goes.
    Decay,
}

names! {
    Replacement {
        Lfu "lfu", Lru "lru", Random "random", SpaceSaving "space-saving", RandomizedAdmission "rap", Decay "decay"
    }
}

/// Random numbers of a hardware generator: xorshift (Marsaglia, 2003). Fixed seed, so that results repeat.
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

    /// A number below a bound that is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}
