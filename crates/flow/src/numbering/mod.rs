//! Numberings of paths: Ball-Larus, Ball-Larus among marked edges, and a perfect hash of known numbers. The crate `selective` has the
//! other numberings ([`NumberingScheme`]).

mod ball_larus;
mod known;
mod marked;
mod scheme;
pub mod sequence;

pub use ball_larus::{Numbering, TooManyPaths};
pub use known::{NoHash, PerfectHash};
pub use marked::{marked_last, number_marked, push_down, zero_unmarked};
pub use scheme::NumberingScheme;

use crate::dag::Dag;

/// An acyclic graph with a numbering of its paths.
#[derive(Clone, Debug)]
pub struct NumberedPaths {
    /// The graph.
    pub dag: Dag,
    /// The numbers of its paths.
    pub numbering: Numbering,
}
