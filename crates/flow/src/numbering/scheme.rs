//! The names of numberings.

use serde::{Deserialize, Serialize};

/// A numbering of paths. The crate `selective` implements all of them except the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumberingScheme {
    /// Ball-Larus: every path has a number.
    BallLarus,
    /// Selective path profiling: few probes, but uninteresting paths may have the number of an interesting one.
    Spp,
    /// Like [`NumberingScheme::Spp`], but probes are restored until no uninteresting path has the number of an interesting one. Takes
    /// exponential time.
    Mspp,
    /// Compact numbers for the paths of interesting edges. All other paths have higher numbers.
    Pertinent,
    /// Precise selective path profiling: each interesting path has a number that no other path has.
    Pspp,
    /// Preferential path profiling: interesting paths have compact numbers, and a path's Ball-Larus number confirms that it is interesting.
    Ppp,
    /// Ball-Larus numbers, looked up in a table of interesting paths.
    KnownTable,
    /// Like [`NumberingScheme::Ppp`], but searches for the most compact numbers within a time limit. Also computes a lower bound.
    PppOptimal,
    /// Like [`NumberingScheme::Ppp`], but without the check.
    Approximate,
}

impl NumberingScheme {
    /// All schemes.
    pub const ALL: [NumberingScheme; 9] = [
        NumberingScheme::BallLarus,
        NumberingScheme::Spp,
        NumberingScheme::Mspp,
        NumberingScheme::Pertinent,
        NumberingScheme::Pspp,
        NumberingScheme::Ppp,
        NumberingScheme::KnownTable,
        NumberingScheme::PppOptimal,
        NumberingScheme::Approximate,
    ];

    /// Returns the scheme's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            NumberingScheme::BallLarus => "ball-larus",
            NumberingScheme::Spp => "spp",
            NumberingScheme::Mspp => "mspp",
            NumberingScheme::Pertinent => "pertinent",
            NumberingScheme::Pspp => "pspp",
            NumberingScheme::Ppp => "ppp",
            NumberingScheme::KnownTable => "known-table",
            NumberingScheme::PppOptimal => "ppp-optimal",
            NumberingScheme::Approximate => "approximate",
        }
    }

    /// Returns whether the scheme selects edges instead of paths. All paths that consist of selected edges are then interesting.
    pub fn selects_edges(self) -> bool {
        matches!(self, NumberingScheme::Spp | NumberingScheme::Mspp | NumberingScheme::Pertinent | NumberingScheme::Pspp)
    }

    /// Returns whether the scheme guarantees that no uninteresting path is counted as an interesting one.
    pub fn is_exact(self) -> bool {
        !matches!(self, NumberingScheme::Spp | NumberingScheme::Approximate)
    }
}
