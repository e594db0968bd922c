//! A fixed sequence of numbers for searches that try things in many orders, so that the same graph always gives the same result.
//!
//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 17) from a constant seed; Fisher and Yates' shuffle.

/// The sequence.
pub struct Shuffle {
    state: u64,
}

impl Default for Shuffle {
    /// From the beginning.
    fn default() -> Shuffle {
        Shuffle::from_seed(0x7472_6f64_6465_6e21)
    }
}

impl Shuffle {
    /// From behind a number.
    pub fn from_seed(state: u64) -> Shuffle {
        Shuffle { state }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// A number from 0 on, below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts things into another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}
