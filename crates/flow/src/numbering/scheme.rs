//! The names of numberings.

use serde::{Deserialize, Serialize};

/// How paths are numbered. The crate `selective` implements all but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumberingScheme {
    /// Ball-Larus: every path has a number.
    BallLarus,
    /// Selective path profiling: few probes, but other paths may get the number of an interesting one.
    Spp,
    /// Like [`NumberingScheme::Spp`], with probes put back until no other path has the number of an interesting one. Exponential time.
    Mspp,
    /// Compact numbers for the paths of interesting edges; all other paths have higher ones.
    Pertinent,
    /// Precise selective path profiling.
    Pspp,
    /// Preferential path profiling, checked against the Ball-Larus number.
    Ppp,
    /// Ball-Larus numbers, looked up in a table of the interesting ones.
    KnownTable,
    /// Like [`NumberingScheme::Ppp`], with the most compact numbers found, and a bound on how compact they could be.
    PppOptimal,
    /// Like [`NumberingScheme::Ppp`], without the check.
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

    /// The scheme's name on the command line.
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

    /// Whether the scheme selects edges: its interesting paths are then all paths that consist of interesting edges.
    pub fn takes_closure(self) -> bool {
        matches!(self, NumberingScheme::Spp | NumberingScheme::Mspp | NumberingScheme::Pertinent | NumberingScheme::Pspp)
    }

    /// Whether the scheme guarantees that no other path is counted as an interesting one.
    pub fn is_exact(self) -> bool {
        !matches!(self, NumberingScheme::Spp | NumberingScheme::Approximate)
    }
}
