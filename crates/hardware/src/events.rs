//! Counters of events: of the block that retires, and of the path on top of the stack (section 5.3).
//!
//! The hardware has one event at a time, in a counter of 8 bits. Several are counted here side by side; that stands for
//! as many runs, or as many copies of the counters. Counters saturate.

/// Events that are counted side by side at most.
pub const MOST_EVENTS: usize = 8;

/// Counts of up to [`MOST_EVENTS`] events; which event is which is the user's business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts(pub [u32; MOST_EVENTS]);

impl EventCounts {
    /// Adds other counts, and holds each at the largest value of the width. Returns whether one was cut off.
    pub fn add(&mut self, other: &EventCounts, width: CounterWidth) -> bool {
        let most = width.largest();
        let mut is_cut = false;
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            let exact = sum.saturating_add(more);
            is_cut |= exact > most;
            *sum = exact.min(most);
        }
        is_cut
    }
}

/// Bits of a path's event counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterWidth(u8);

impl CounterWidth {
    /// As published: 8 bits.
    pub const PUBLISHED: CounterWidth = CounterWidth(8);
    /// The widest: 32 bits.
    pub const WIDEST: CounterWidth = CounterWidth(32);

    /// So many bits.
    ///
    /// # Errors
    /// They are 0 or more than 32.
    pub fn new(bits: u8) -> Result<CounterWidth, crate::HardwareError> {
        match bits {
            1..=32 => Ok(CounterWidth(bits)),
            _ => Err(crate::HardwareError::parameter("counter width", bits, "1 to 32 bits")),
        }
    }

    /// Number of bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Largest value.
    pub fn largest(self) -> u32 {
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
        assert_eq!(CounterWidth::WIDEST.largest(), u32::MAX);
        assert!(CounterWidth::new(0).is_err() && CounterWidth::new(33).is_err());
    }
}
