//! Event counts of a retiring block and of the path on top of the stack (section 5.3). The hardware counts one event per run, in 8 bits.
//! The model counts several events at once, which corresponds to several runs or several counters. Counters saturate.

/// Maximum number of events counted at once.
pub const MAX_EVENTS: usize = 8;

/// Counts of up to [`MAX_EVENTS`] events. The caller decides which event each index stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts(pub [u32; MAX_EVENTS]);

impl EventCounts {
    /// Adds counts, saturating at the maximum for the given width. Returns true if any counter saturated.
    pub fn add(&mut self, other: &EventCounts, width: CounterWidth) -> bool {
        let max = width.max_value();
        let mut is_saturated = false;
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            let exact = sum.saturating_add(more);
            is_saturated |= exact > max;
            *sum = exact.min(max);
        }
        is_saturated
    }
}

/// The width of a path's event counter, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterWidth(u8);

impl CounterWidth {
    /// The published width: 8 bits.
    pub const PUBLISHED: CounterWidth = CounterWidth(8);
    /// The maximum width: 32 bits.
    pub const WIDEST: CounterWidth = CounterWidth(32);

    /// Creates a width of 1 to 32 bits.
    ///
    /// # Errors
    /// Fails if `bits` is out of range.
    pub fn new(bits: u8) -> Result<CounterWidth, crate::HardwareError> {
        match bits {
            1..=32 => Ok(CounterWidth(bits)),
            _ => Err(crate::HardwareError::parameter("counter width", bits, "1 to 32 bits")),
        }
    }

    /// Returns the number of bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the greatest value that a counter of this width can hold.
    pub fn max_value(self) -> u32 {
        u32::MAX >> (32 - self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_saturate_at_their_width() {
        let mut sum = EventCounts::default();
        let block = EventCounts([200, 1, 0, 0, 0, 0, 0, 0]);
        assert!(!sum.add(&block, CounterWidth::PUBLISHED));
        assert!(sum.add(&block, CounterWidth::PUBLISHED));
        assert_eq!(sum.0[..2], [255, 2]);
        assert_eq!(CounterWidth::WIDEST.max_value(), u32::MAX);
        assert!(CounterWidth::new(0).is_err() && CounterWidth::new(33).is_err());
    }
}
