//! Path descriptors: a path's start address, number of branches, and branch outcomes (section 5.2).

use crate::stream::Address;

/// Maximum number of branches in a descriptor. The published limit is 32; the detector's own limit is a parameter.
pub const MAX_DESCRIPTOR_BRANCHES: u8 = 64;

/// Identifies a path. Unconditional branches count as taken branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathDescriptor {
    /// Address of the first instruction.
    pub start: Address,
    /// Number of branches.
    pub length: u8,
    /// One bit for each branch: 1 if taken, 0 if not; the first branch is the lowest bit.
    pub outcomes: u64,
}

impl PathDescriptor {
    /// Creates a path without branches.
    pub fn start_at_address(start: Address) -> PathDescriptor {
        PathDescriptor { start, length: 0, outcomes: 0 }
    }

    /// Appends a branch. The caller ensures that the length is below [`MAX_DESCRIPTOR_BRANCHES`].
    pub fn push(&mut self, is_taken: bool) {
        debug_assert!(self.length < MAX_DESCRIPTOR_BRANCHES, "a descriptor holds {MAX_DESCRIPTOR_BRANCHES} branches");
        self.outcomes |= u64::from(is_taken) << self.length;
        self.length += 1;
    }

    /// Returns whether each branch was taken, in execution order.
    pub fn outcomes(self) -> impl Iterator<Item = bool> {
        (0..self.length).map(move |at| self.outcomes >> at & 1 == 1)
    }

    /// Returns the outcomes as digits in execution order: 1 for a taken branch, 0 for a branch that is not taken.
    pub fn outcome_digits(self) -> String {
        self.outcomes().map(|taken| if taken { '1' } else { '0' }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_returned_in_order() {
        let mut path = PathDescriptor::start_at_address(Address(0x10));
        let outcomes = [true, false, false, true, true];
        outcomes.iter().for_each(|o| path.push(*o));
        assert_eq!((path.length, path.outcomes), (5, 0b11001));
        assert_eq!(path.outcomes().collect::<Vec<_>>(), outcomes);
        (5..MAX_DESCRIPTOR_BRANCHES).for_each(|_| path.push(true));
        assert_eq!(path.outcomes().filter(|o| *o).count(), 62);
    }
}
