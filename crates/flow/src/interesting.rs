//! Plans that count each interesting path in a counter of its own, and all others in one. The crate `selective` makes them.

use crate::dag::Dag;
use crate::numbering::Numbering;
use crate::plan::Plan;

/// A plan that counts the interesting paths.
#[derive(Clone, Debug)]
pub struct InterestingPlan {
    /// The acyclic graph of all paths.
    pub dag: Dag,
    /// The numbers of its paths.
    pub numbering: Numbering,
    /// The increments and their edges.
    pub plan: Plan,
    /// Maps the register at the end of a path to a counter.
    pub ending: PathEnding,
    /// Counters with the numbers of their paths, ascending. Counters that are not listed count other paths.
    pub paths: Vec<(u64, u64)>,
    /// Other paths that are counted by a listed counter, too.
    pub aliases: NumberAliases,
    /// Whether the numbering was proven correct, and not only tested on some paths.
    pub proven: bool,
}

/// Maps the register at the end of a path to a counter. Counters are numbered from 0; the last counts all other paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEnding {
    /// The counter is `register + bias`, if that is in range.
    Direct {
        /// The negated least number.
        bias: i64,
        /// Number of counters, without the last.
        width: u64,
        /// Whether sums may be out of range.
        checked: bool,
    },
    /// The counter is in the upper bits of `register + bias`, if the whole equals the expected value for that counter.
    Checked {
        /// The negated least number, shifted to the upper bits.
        bias: i64,
        /// Number of lower bits.
        shift: u32,
        /// For each counter, the expected `register + bias`; for counters without a path, a value that cannot occur there.
        expected: Vec<u64>,
    },
    /// The counter is `(register * multiplier) >> shift`, if the register is the key of that counter.
    Hashed {
        /// The multiplier of the hash.
        multiplier: u64,
        /// Number of bits that are dropped.
        shift: u32,
        /// For each counter its path's register; for counters without a path, a value that no register has.
        keys: Vec<u64>,
    },
}

impl PathEnding {
    /// Number of counters.
    pub fn counter_count(&self) -> u64 {
        1 + match self {
            PathEnding::Direct { width, .. } => *width,
            PathEnding::Checked { expected, .. } => expected.len() as u64,
            PathEnding::Hashed { keys, .. } => keys.len() as u64,
        }
    }

    /// The mask of the register's bits that hold the path's Ball-Larus number; `None` if the register holds nothing else.
    pub fn identity_mask(&self) -> Option<u64> {
        match self {
            PathEnding::Checked { shift, .. } => Some(u64::MAX.checked_shr(u64::BITS - shift).unwrap_or(0)),
            PathEnding::Direct { .. } | PathEnding::Hashed { .. } => None,
        }
    }

    /// The counter of a path with this register.
    pub fn counter_of(&self, register: i64) -> u64 {
        let other = self.counter_count() - 1;
        match self {
            PathEnding::Direct { bias, .. } => (register.wrapping_add(*bias) as u64).min(other),
            PathEnding::Checked { bias, shift, expected } => {
                let biased = register.wrapping_add(*bias) as u64;
                let word = biased >> shift;
                if word < other && expected[word as usize] == biased { word } else { other }
            }
            PathEnding::Hashed { multiplier, shift, keys } => {
                let word = (register as u64).wrapping_mul(*multiplier) >> shift;
                if keys[word as usize] == register as u64 { word } else { other }
            }
        }
    }
}

/// How many uninteresting paths are counted as interesting ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberAliases {
    /// The exact number.
    Exact(u128),
    /// A sample: the number among randomly drawn uninteresting paths.
    Sampled {
        /// Aliases among them.
        aliases: u64,
        /// Number of uninteresting paths drawn.
        of: u64,
    },
}
