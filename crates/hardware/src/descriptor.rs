//! Path descriptors: where a path begins, how many branches it has, and which of them were taken (section 5.2).

use crate::stream::Address;

/// No descriptor holds more branches. The published limit is 32; limits up to this one are a parameter of the detector.
pub const MOST_BRANCHES: u8 = 64;

/// A path. The outcome of its first branch is the lowest bit; that of an unconditional branch is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathDescriptor {
    /// First instruction.
    pub start: Address,
    /// Branches along it.
    pub length: u8,
    /// An outcome for each branch.
    pub outcomes: u64,
}

impl PathDescriptor {
    /// A path without branches.
    pub fn starting_at(start: Address) -> PathDescriptor {
        PathDescriptor { start, length: 0, outcomes: 0 }
    }

    /// Adds a branch. The caller holds the length below [`MOST_BRANCHES`].
    pub fn push(&mut self, is_taken: bool) {
        debug_assert!(self.length < MOST_BRANCHES, "a descriptor holds {MOST_BRANCHES} branches");
        self.outcomes |= u64::from(is_taken) << self.length;
        self.length += 1;
    }

    /// Outcomes, first branch first.
    pub fn outcomes(self) -> impl Iterator<Item = bool> {
        (0..self.length).map(move |at| self.outcomes >> at & 1 == 1)
    }

    /// A digit for each branch, first branch first; 1 is taken.
    pub fn outcome_digits(self) -> String {
        self.outcomes().map(|taken| if taken { '1' } else { '0' }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back_in_order() {
        let mut path = PathDescriptor::starting_at(Address(0x10));
        let outcomes = [true, false, false, true, true];
        outcomes.iter().for_each(|o| path.push(*o));
        assert_eq!((path.length, path.outcomes), (5, 0b11001));
        assert_eq!(path.outcomes().collect::<Vec<_>>(), outcomes);
        (5..MOST_BRANCHES).for_each(|_| path.push(true));
        assert_eq!(path.outcomes().filter(|o| *o).count(), 62);
    }
}
