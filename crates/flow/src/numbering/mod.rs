//! Numberings of paths: Ball-Larus, Ball-Larus restricted to marked edges, and a perfect hash of known numbers. The crate `selective`
//! implements the other numberings ([`NumberingScheme`]).

mod ball_larus;
mod known;
mod marked;
mod scheme;
pub mod sequence;

pub use ball_larus::{Numbering, TooManyPaths};
pub use known::{NoPerfectHashError, PerfectHash};
pub use marked::{number_marked_paths, number_with_marked_edges_last, push_values_down, zero_unmarked_values};
pub use scheme::NumberingScheme;

use crate::dag::Dag;

/// An acyclic graph with a numbering of its paths.
#[derive(Clone, Debug)]
pub struct NumberedPaths {
    /// The acyclic graph.
    pub dag: Dag,
    /// The numbers of its paths.
    pub numbering: Numbering,
}
