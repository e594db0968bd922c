//! A deterministic pseudo-random generator, so that randomised searches have the same result each time.
//!
//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 17) with a constant seed, and the Fisher-Yates shuffle.

/// The pseudo-random generator.
pub struct ShuffleRng {
    state: u64,
}

impl Default for ShuffleRng {
    /// Starts with the constant seed.
    fn default() -> ShuffleRng {
        ShuffleRng::from_seed(0x7472_6f64_6465_6e21)
    }
}

impl ShuffleRng {
    /// Starts with the given seed.
    pub fn from_seed(state: u64) -> ShuffleRng {
        ShuffleRng { state }
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// Returns a number in [0, 1).
    pub fn random_fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles a slice.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}
