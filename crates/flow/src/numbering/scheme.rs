//! The names of numberings.

use serde::{Deserialize, Serialize};

/// How paths are numbered. All but the first are made by the crate `selective`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumberingScheme {
    /// Every path has a number.
    BallLarus,
    /// Selective path profiling: few probes; other paths may have the number of an interesting one.
    Spp,
    /// The same with probes put back until no other path has the number of an interesting one. Exponential.
    Mspp,
    /// Compact numbers for the closure of the interesting edges; other paths have higher ones.
    Pertinent,
    /// Precise selective path profiling.
    Pspp,
    /// Preferential path profiling, checked against the Ball-Larus identity.
    Ppp,
    /// Ball-Larus identities looked up in a table of known ones.
    KnownTable,
    /// As [`NumberingScheme::Ppp`], with the most compact numbers that are found, and a bound on how compact they could be.
    PppOptimal,
    /// As [`NumberingScheme::Ppp`] without the check.
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

    /// Whether the scheme works on edges: its interesting paths are all whose edges are interesting.
    pub fn takes_closure(self) -> bool {
        matches!(self, NumberingScheme::Spp | NumberingScheme::Mspp | NumberingScheme::Pertinent | NumberingScheme::Pspp)
    }

    /// Whether the scheme promises that no other path is taken for an interesting one.
    pub fn is_exact(self) -> bool {
        !matches!(self, NumberingScheme::Spp | NumberingScheme::Approximate)
    }
}
