//! Which set of the hot path table a path belongs to (section 5.4).

use crate::descriptor::PathDescriptor;
use crate::names::names;

/// How the index is made of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexFunction {
    /// Low bits of the start address.
    Start,
    /// Low bits of start address, length and outcomes, exclusive-or: the published choice.
    #[default]
    Xor,
    /// All bits of the three, folded by exclusive-or: long paths differ in their last outcomes only.
    Fold,
    /// All bits of the three, mixed by multiplication: what a perfect hash function would give.
    Mix,
}

names! { IndexFunction { Start "start", Xor "xor", Fold "fold", Mix "mix" } }

impl IndexFunction {
    /// The set of a path among `sets`, which is a power of two.
    pub fn set(self, path: &PathDescriptor, sets: usize) -> usize {
        let bits = sets.trailing_zeros();
        let (start, length) = (path.start.0, u64::from(path.length));
        let value = match self {
            IndexFunction::Start => start,
            IndexFunction::Xor => start ^ length ^ path.outcomes,
            IndexFunction::Fold => fold(start, bits) ^ fold(path.outcomes, bits) ^ length,
            IndexFunction::Mix => mix(start ^ mix(path.outcomes ^ (length << 58))) >> 32,
        };
        value as usize & (sets - 1)
    }
}

/// Exclusive-or of all groups of so many bits.
fn fold(mut value: u64, bits: u32) -> u64 {
    let mut folded = 0;
    while value != 0 && bits != 0 {
        folded ^= value;
        value >>= bits;
    }
    folded
}

/// A multiplication by 2^64 over the golden ratio, with its high half folded in (Knuth, volume 3, section 6.4).
fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Address;

    #[test]
    fn the_published_functions() {
        let path = PathDescriptor { start: Address(0x1234), length: 5, outcomes: 0b10110 };
        assert_eq!(IndexFunction::Start.set(&path, 128), 0x34);
        assert_eq!(IndexFunction::Xor.set(&path, 128), 0x34 ^ 5 ^ 0b10110);
    }

    #[test]
    fn every_function_stays_in_the_table() {
        for function in IndexFunction::ALL {
            for sets in [1, 2, 128, 1 << 14] {
                for at in 0..200u64 {
                    let path =
                        PathDescriptor { start: Address(at.wrapping_mul(0x1_0001_0001)), length: (at % 33) as u8, outcomes: at << 25 };
                    assert!(function.set(&path, sets) < sets, "{function:?}");
                }
            }
        }
    }
}
