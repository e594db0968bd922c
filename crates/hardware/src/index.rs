//! Index functions of the hot path table, which map a path to a set (section 5.4).

use crate::descriptor::PathDescriptor;
use crate::names::names;

/// A function from path descriptors to sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IndexFunction {
    /// The low bits of the start address.
    Start,
    /// The low bits of the exclusive or of start address, length and outcomes; the published choice.
    #[default]
    Xor,
    /// All bits of start address, length and outcomes, combined by exclusive or. Unlike `Xor`, this function includes the late outcomes,
    /// and long paths often differ only in those.
    Fold,
    /// All bits of start address, length and outcomes, mixed by multiplication. This approximates a perfect hash.
    Mix,
}

names! { IndexFunction { Start "start", Xor "xor", Fold "fold", Mix "mix" } }

impl IndexFunction {
    /// Returns the index of a path's set, which is below `sets`. `sets` must be a power of two.
    pub fn set_index(self, path: &PathDescriptor, sets: usize) -> usize {
        let bits = sets.trailing_zeros();
        let (start, length) = (path.start.0, u64::from(path.length));
        let value = match self {
            IndexFunction::Start => start,
            IndexFunction::Xor => start ^ length ^ path.outcomes,
            IndexFunction::Fold => fold_bits(start, bits) ^ fold_bits(path.outcomes, bits) ^ length,
            IndexFunction::Mix => mix_bits(start ^ mix_bits(path.outcomes ^ (length << 58))) >> 32,
        };
        value as usize & (sets - 1)
    }
}

/// Splits a value into groups of `bits` bits. The lowest `bits` bits of the result are the exclusive or of the groups; the other bits
/// have no meaning.
fn fold_bits(mut value: u64, bits: u32) -> u64 {
    let mut folded = 0;
    while value != 0 && bits != 0 {
        folded ^= value;
        value >>= bits;
    }
    folded
}

/// Multiplies by 2^64 over the golden ratio, and folds in the high half (Knuth, volume 3, section 6.4).
fn mix_bits(value: u64) -> u64 {
    let product = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Address;

    #[test]
    fn published_index_functions_are_reproduced() {
        let path = PathDescriptor { start: Address(0x1234), length: 5, outcomes: 0b10110 };
        assert_eq!(IndexFunction::Start.set_index(&path, 128), 0x34);
        assert_eq!(IndexFunction::Xor.set_index(&path, 128), 0x34 ^ 5 ^ 0b10110);
    }

    #[test]
    fn index_is_below_number_of_sets() {
        for function in IndexFunction::ALL {
            for sets in [1, 2, 128, 1 << 14] {
                for at in 0..200u64 {
                    let path =
                        PathDescriptor { start: Address(at.wrapping_mul(0x1_0001_0001)), length: (at % 33) as u8, outcomes: at << 25 };
                    assert!(function.set_index(&path, sets) < sets, "{function:?}");
                }
            }
        }
    }
}
