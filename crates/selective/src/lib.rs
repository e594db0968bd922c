//! Selective numberings of paths: a [`NumberingScheme`] makes a [`Labelling`] from a DAG, weights and a set of interesting paths.
//!
//! `spp`, `mspp`, `pertinent` and `pspp` number the closure of a set of edges, which is all paths that consist of these edges; `ppp`,
//! `known-table`, `ppp-optimal` and `approximate` number any list of paths. All schemes except `spp` and `approximate` are exact. The
//! sources are the P3 paper (Afraz, Saha and Kanade, 2015) and Vaswani's thesis; each module cites the section. [`verify`](mod@verify)
//! verifies labellings, and [`plan`] makes plans from them.
#![forbid(unsafe_code)]

mod approximate;
mod closure;
pub mod contexts;
pub mod iterations;
mod labelling;
mod lattice;
mod lifting;
mod optimal;
pub mod plan;
mod preferential;
pub mod separation;
mod set;
pub mod steps;
pub mod verify;

pub use closure::{mspp_values, pertinent_path_values, pspp_values, spp_values};
pub use labelling::{
    Classification, ClosureMembership, Labelling, NumberSpan, PathClass, PathRegister, PlacedRegisters, RegisterIncrements,
    RegisterPlacement,
};
pub use lattice::Lattice;
pub use optimal::{Budget, EdgeValueAssignment, SpanProof, SpanSearchEnd};
pub use preferential::{MAX_PREFERENTIAL_RESTARTS, PreferentialIds, preferential};
pub use set::{InterestingSet, MAX_LISTED_PATHS};

use trodden_flow::Dag;
use trodden_flow::numbering::{NoPerfectHashError, Numbering, NumberingScheme, PerfectHash, TooManyPaths};

/// Options for the search for a numbering, and for the placement of its probes.
#[derive(Clone, Copy)]
pub struct NumberOptions<'a> {
    /// Number of additional orders of out-edges that preferential numbering tries.
    pub restarts: u32,
    /// The edges on which increments are placed.
    pub placement: RegisterPlacement,
    /// Limits of the search by the optimal and the approximate scheme.
    pub budget: Budget<'a>,
}

impl Default for NumberOptions<'_> {
    fn default() -> Self {
        NumberOptions { restarts: 16, placement: RegisterPlacement::Cheaper, budget: Budget::default() }
    }
}

/// The reason why paths could not be numbered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberingError {
    /// See [`TooManyPaths`].
    #[error(transparent)]
    TooManyPaths(#[from] TooManyPaths),
    /// The set of interesting paths is empty.
    #[error("no interesting path is selected. Select a path whose edges lead from the entry to the exit")]
    NothingInteresting,
    /// An interesting path is not a path of the graph.
    #[error("interesting path {number} is not a path of the graph: {why}")]
    NoPath {
        /// The path's index in the list.
        number: usize,
        /// What is wrong with the path's edges.
        why: String,
    },
    /// No path has this number.
    #[error("no path has number {id}: there are {paths} paths, numbered from 0")]
    NoSuchId {
        /// The requested number.
        id: u64,
        /// Number of paths in the graph.
        paths: u64,
    },
    /// No path visits all of these nodes.
    #[error("{}", Self::no_path_through(.nodes))]
    NoPathThrough {
        /// The requested nodes.
        nodes: Vec<u32>,
    },
    /// The scheme needs a list of the interesting paths, but there are too many.
    #[error("{paths} interesting paths are too many for this scheme (limit: {limit}). Select fewer paths, or use the scheme pspp")]
    TooManyInteresting {
        /// Number of interesting paths.
        paths: u128,
        /// Maximum number of interesting paths.
        limit: u64,
    },
    /// There are too many paths for `mspp`, which takes exponential time.
    #[error("{paths} paths are too many for the scheme mspp, which tries every path for every edge (limit: {limit}). Use the scheme pspp")]
    TooLargeForRepair {
        /// Number of paths.
        paths: u64,
        /// Maximum number of paths.
        limit: u64,
    },
    /// The numbers do not fit into a word.
    #[error("the numbers of the interesting paths do not fit into 64 bits. Select fewer paths, or use the scheme known-table")]
    Overflow,
    /// The numbers of the interesting paths are too far apart for an array.
    #[error(
        "the numbers of the interesting paths span {span} values, but an array can hold at most {limit}. Select fewer paths, or use the \
         scheme known-table"
    )]
    TooWide {
        /// Greatest minus least number of an interesting path, plus one.
        span: u128,
        /// Maximum span.
        limit: u128,
    },
    /// See [`NoPerfectHashError`].
    #[error(transparent)]
    NoPerfectHashError(#[from] NoPerfectHashError),
}

impl NumberingError {
    /// Returns the message of [`NumberingError::NoPathThrough`], with the given names of the nodes.
    pub fn no_path_through<N: std::fmt::Display>(nodes: &[N]) -> String {
        let nodes: Vec<String> = nodes.iter().map(N::to_string).collect();
        format!("no path passes through all of the nodes {}. Give fewer nodes", nodes.join(", "))
    }
}

/// Numbers the paths of `dag`. `weights` are execution counts of the edges, or costs of increments on them.
pub fn number(
    scheme: NumberingScheme,
    dag: &Dag,
    weights: &[f64],
    set: &InterestingSet,
    options: &NumberOptions,
) -> Result<Labelling, NumberingError> {
    let all = Numbering::ball_larus(dag)?;
    let place = |values: &[&[i64]]| labelling::place_increments(dag, values, weights, options.placement);
    if scheme.selects_edges() {
        let set = set.closed();
        let values = closure_values(scheme, dag, &set)?;
        return Ok(Labelling::from_closure(scheme, dag, place(&[&values]), values, &set));
    }
    match scheme {
        NumberingScheme::BallLarus => Ok(Labelling::from_ball_larus(place(&[all.values()]), &all)),
        NumberingScheme::KnownTable => {
            let ids: Vec<u64> = set.paths(dag)?.iter().map(|p| all.id(p)).collect();
            Ok(Labelling::from_hash_table(place(&[all.values()]), PerfectHash::from_keys(&ids)?, &ids))
        }
        NumberingScheme::PppOptimal => {
            let paths = set.paths(dag)?;
            let first = preferential(dag, &paths, options.restarts)?;
            let best = optimal::find_compact_numbers(dag, &paths, first, options.budget)?;
            let placed = place(&[&best.values, all.values()]);
            Labelling::from_checked_numbers(scheme, placed, &best.values, &all, &paths, Some(best.proof))
        }
        _ => {
            let paths = set.paths(dag)?;
            let values = preferential(dag, &paths, options.restarts)?.values;
            match scheme {
                NumberingScheme::Ppp => {
                    Labelling::from_checked_numbers(scheme, place(&[&values, all.values()]), &values, &all, &paths, None)
                }
                _ => {
                    let values = approximate::reduce_aliases(dag, &all, &paths, values, options.budget.steps);
                    Ok(Labelling::from_unchecked_numbers(place(&[&values]), &values, &all, &paths))
                }
            }
        }
    }
}

fn closure_values(scheme: NumberingScheme, dag: &Dag, set: &InterestingSet) -> Result<Vec<i64>, NumberingError> {
    match scheme {
        NumberingScheme::Spp => spp_values(dag, set),
        NumberingScheme::Mspp => mspp_values(dag, set),
        NumberingScheme::Pertinent => pertinent_path_values(dag, set),
        _ => pspp_values(dag, set),
    }
}

/// Numbers the paths of `dag` like [`number`], except that a scheme that numbers all paths of interesting edges recognises exactly the
/// listed paths of `set`: a second register has the Ball-Larus number of every path.
pub fn number_listed(
    scheme: NumberingScheme,
    dag: &Dag,
    weights: &[f64],
    set: &InterestingSet,
    options: &NumberOptions,
) -> Result<Labelling, NumberingError> {
    if !scheme.selects_edges() {
        return number(scheme, dag, weights, set, options);
    }
    let (all, values) = (Numbering::ball_larus(dag)?, closure_values(scheme, dag, &set.closed())?);
    let placed = labelling::place_increments(dag, &[&values, all.values()], weights, options.placement);
    Labelling::from_checked_numbers(scheme, placed, &values, &all, &set.paths(dag)?, None)
}
