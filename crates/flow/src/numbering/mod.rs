//! Numbers of paths: those of Ball and Larus, the same among marked edges, and a perfect hash of known ones. The other
//! numberings ([`NumberingScheme`]) are the crate `selective`'s.

mod ball_larus;
mod known;
mod marked;
mod scheme;
pub mod sequence;

pub use ball_larus::{Numbering, TooManyPaths};
pub use known::{NoHash, PerfectHash};
pub use marked::{absorb, marked_last, number_within, push_down};
pub use scheme::NumberingScheme;

use crate::dag::Dag;

/// Paths that have numbers.
#[derive(Clone, Debug)]
pub struct NumberedPaths {
    /// Their acyclic graph.
    pub dag: Dag,
    /// Their numbers.
    pub numbering: Numbering,
}
