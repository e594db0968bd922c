//! Plans that count each interesting path in a separate counter, and all other paths in one counter. The crate `selective` creates these
//! plans.

use crate::dag::Dag;
use crate::numbering::Numbering;
use crate::plan::Plan;

/// A plan that counts each interesting path separately.
#[derive(Clone, Debug)]
pub struct InterestingPathPlan {
    /// The acyclic graph of all paths.
    pub dag: Dag,
    /// The numbers of its paths.
    pub numbering: Numbering,
    /// The increments of the path register, and the edges on which they are placed.
    pub plan: Plan,
    /// How the path register at the end of a path determines the counter.
    pub ending: PathEndCounterMapping,
    /// Pairs of a counter and the number of the interesting path that it counts, ascending. All other counters count uninteresting paths.
    pub paths: Vec<(u64, u64)>,
    /// How many uninteresting paths are counted by the counter of an interesting path.
    pub aliases: UninterestingPathAliases,
    /// Whether the numbering was verified for all paths. If false, it was only tested on some paths.
    pub proven: bool,
}

/// How the path register at the end of a path determines the path's counter. Counters are numbered from 0, and the last counter counts all
/// uninteresting paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEndCounterMapping {
    /// The counter is `register + bias` if that is in range, and otherwise the last counter.
    Direct {
        /// The negated minimum number of an interesting path, so that counters start at 0.
        bias: i64,
        /// Number of counters, not including the last one.
        width: u64,
        /// True if `register + bias` may be out of range.
        checked: bool,
    },
    /// The counter is in the upper bits of `register + bias`, if this sum equals the expected value for the counter. Otherwise, it is the
    /// last counter.
    Checked {
        /// The negated minimum number, shifted to the upper bits.
        bias: i64,
        /// Number of bits below the counter.
        shift: u32,
        /// The expected `register + bias` for each counter; for counters without a path, a value that cannot occur there.
        expected: Vec<u64>,
    },
    /// The counter is `(register * multiplier) >> shift`, if the register equals the counter's key. Otherwise, it is the last counter.
    Hashed {
        /// The multiplier of the hash.
        multiplier: u64,
        /// Number of bits by which the product is shifted.
        shift: u32,
        /// The register of each counter's path; for counters without a path, a value that the register never has.
        keys: Vec<u64>,
    },
}

impl PathEndCounterMapping {
    /// Returns the number of counters.
    pub fn counter_count(&self) -> u64 {
        1 + match self {
            PathEndCounterMapping::Direct { width, .. } => *width,
            PathEndCounterMapping::Checked { expected, .. } => expected.len() as u64,
            PathEndCounterMapping::Hashed { keys, .. } => keys.len() as u64,
        }
    }

    /// Returns a mask of the register bits that identify the path, or `None` if all bits do.
    pub fn identity_mask(&self) -> Option<u64> {
        match self {
            PathEndCounterMapping::Checked { shift, .. } => Some(u64::MAX.checked_shr(u64::BITS - shift).unwrap_or(0)),
            PathEndCounterMapping::Direct { .. } | PathEndCounterMapping::Hashed { .. } => None,
        }
    }

    /// Returns the counter of a path with the given register.
    pub fn counter_of(&self, register: i64) -> u64 {
        let other = self.counter_count() - 1;
        match self {
            PathEndCounterMapping::Direct { bias, .. } => (register.wrapping_add(*bias) as u64).min(other),
            PathEndCounterMapping::Checked { bias, shift, expected } => {
                let biased = register.wrapping_add(*bias) as u64;
                let word = biased >> shift;
                if word < other && expected[word as usize] == biased { word } else { other }
            }
            PathEndCounterMapping::Hashed { multiplier, shift, keys } => {
                let word = (register as u64).wrapping_mul(*multiplier) >> shift;
                if keys[word as usize] == register as u64 { word } else { other }
            }
        }
    }
}

/// How many uninteresting paths are counted as interesting paths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UninterestingPathAliases {
    /// The number was determined for all uninteresting paths.
    Exact(u128),
    /// The number was determined for a random sample of the uninteresting paths.
    Sampled {
        /// Number of random paths that are counted as interesting ones.
        aliases: u64,
        /// Number of random paths.
        of: u64,
    },
}
