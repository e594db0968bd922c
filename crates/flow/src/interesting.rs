//! What a program does to count the interesting paths, and all others together. The crate `selective` makes it.

use crate::dag::Dag;
use crate::numbering::Numbering;
use crate::plan::Plan;

/// A plan that counts the interesting paths.
#[derive(Clone, Debug)]
pub struct InterestingPlan {
    /// The acyclic graph of all paths.
    pub dag: Dag,
    /// Their identities.
    pub numbering: Numbering,
    /// What is added where.
    pub plan: Plan,
    /// Which word counts a path.
    pub ending: PathEnding,
    /// Words with the identities of their paths, ascending. Other words count other paths.
    pub paths: Vec<(u64, u64)>,
    /// Other paths that a word of this list counts, too.
    pub aliases: NumberAliases,
    /// Whether the numbering was proven, not only tried on some paths.
    pub proven: bool,
}

/// Which word counts a path, by the register at its end; words are numbered from 0, and the last is that of all other paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEnding {
    /// The register and `bias`, if that is a word.
    Direct {
        /// Minus the least number.
        bias: i64,
        /// Number of words but the last.
        width: u64,
        /// Whether sums may lie outside.
        checked: bool,
    },
    /// The upper bits of the register and `bias`, if the whole is what is noted for that word.
    Checked {
        /// Minus the least number, in the upper bits.
        bias: i64,
        /// Number of the lower bits.
        shift: u32,
        /// For each word the register and `bias` of its path; of words without a path, what no register there can be.
        expected: Vec<u64>,
    },
    /// `(register * multiplier) >> shift`, if the register is what is noted for that word.
    Hashed {
        /// Spreads the identities.
        multiplier: u64,
        /// The bits that are dropped.
        shift: u32,
        /// For each word its path's register; of words without a path, what no register can be.
        keys: Vec<u64>,
    },
}

impl PathEnding {
    /// Number of words.
    pub fn words(&self) -> u64 {
        1 + match self {
            PathEnding::Direct { width, .. } => *width,
            PathEnding::Checked { expected, .. } => expected.len() as u64,
            PathEnding::Hashed { keys, .. } => keys.len() as u64,
        }
    }

    /// Which of the register's bits are the path's Ball-Larus number, where it holds that beside another number.
    pub fn identity_mask(&self) -> Option<u64> {
        match self {
            PathEnding::Checked { shift, .. } => Some(u64::MAX.checked_shr(u64::BITS - shift).unwrap_or(0)),
            PathEnding::Direct { .. } | PathEnding::Hashed { .. } => None,
        }
    }

    /// The word that counts a path.
    pub fn word(&self, register: i64) -> u64 {
        let other = self.words() - 1;
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

/// Uninteresting paths that are recognised as interesting ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberAliases {
    /// This many.
    Exactly(u128),
    /// This many of so many uninteresting paths that were drawn at random.
    Drawn {
        /// Aliases among them.
        aliases: u64,
        /// How many uninteresting paths were drawn.
        of: u64,
    },
}
