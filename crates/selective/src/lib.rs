//! Numberings of paths behind one interface: a [`NumberingScheme`] takes a DAG, weights and a set of interesting paths, and gives a
//! [`Labelling`].
//!
//! | scheme | source | interesting paths | registers | other paths |
//! |---|---|---|---|---|
//! | `ball-larus` | Ball and Larus (1996) | all | 1 | - |
//! | `spp` | Apiwattanapong and Harrold (2002); P3 paper, section 2.2 | closure of edges | 1 | may have an interesting path's identity |
//! | `mspp` | its repair: P3 paper, section 5 | closure of edges | 1 | distinguished |
//! | `pertinent` | compact numbers for a closure, such as the paths through given nodes | closure of edges | 1 | distinguished |
//! | `pspp` | P3 paper, algorithm 1 | closure of edges | 1 | distinguished |
//! | `ppp` | thesis, figure 3.10 | any list | 2 | distinguished by their Ball-Larus identity |
//! | `known-table` | a perfect hash of Ball-Larus identities | any list | 1 | distinguished |
//! | `ppp-optimal` | thesis, problem A | any list | 2 | distinguished by their Ball-Larus identity |
//! | `approximate` | thesis, section 6.2.1 | any list | 1 | may have an interesting path's identity |
//!
//! None of them verifies its result: that is the task of [`verify`](mod@verify), which shares no code with the others. [`plan`] makes of a
//! labelling what a backend inserts.
#![forbid(unsafe_code)]

mod approximate;
mod closure;
pub mod contexts;
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

pub use closure::{modified_selective, pertinent, precise_selective, selective};
pub use labelling::{Class, Classification, Increments, Labelling, PlacedRegisters, Register, RegisterPlacement, SetMember, Span};
pub use lattice::Lattice;
pub use optimal::{Assignment, Budget, Proof, SearchEnd};
pub use preferential::{MOST_RESTARTS, PreferentialIds, preferential};
pub use set::{InterestingSet, MOST_LISTED};

use trodden_flow::Dag;
use trodden_flow::numbering::{NoHash, Numbering, NumberingScheme, PerfectHash, TooManyPaths};

/// How a numbering is searched for and its probes are placed.
#[derive(Clone, Copy)]
pub struct NumberOptions<'a> {
    /// How many further orders of out-edges preferential numbering tries.
    pub restarts: u32,
    /// Where increments go.
    pub placement: RegisterPlacement,
    /// How long the optimal and the approximate scheme may search.
    pub budget: Budget<'a>,
}

impl Default for NumberOptions<'_> {
    fn default() -> Self {
        NumberOptions { restarts: 16, placement: RegisterPlacement::Cheaper, budget: Budget::default() }
    }
}

/// Why paths could not be numbered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberingError {
    /// See [`TooManyPaths`].
    #[error(transparent)]
    TooManyPaths(#[from] TooManyPaths),
    /// The set of interesting paths is empty.
    #[error("no path is of interest: name a path whose edges lead from the entry to the exit")]
    NothingInteresting,
    /// What was given as an interesting path is none.
    #[error("interesting path {number} is none: {why}")]
    NoPath {
        /// Its place in the list.
        number: usize,
        /// What is wrong.
        why: String,
    },
    /// No path has a number that was given.
    #[error("there is no path {id}: paths are numbered from 0, and there are {paths}")]
    NoSuchId {
        /// The number.
        id: u64,
        /// How many paths there are.
        paths: u64,
    },
    /// No path visits all of some nodes.
    #[error("{}", Self::no_path_through(.nodes))]
    NoPathThrough {
        /// The nodes.
        nodes: Vec<u32>,
    },
    /// A scheme needs the list of interesting paths, and it is too long.
    #[error("{paths} paths are of interest, and this scheme lists them: name at most {limit}, or take pspp")]
    TooManyInteresting {
        /// How many.
        paths: u128,
        /// How many there may be.
        limit: u64,
    },
    /// The exponential baseline would take too long.
    #[error("mspp tries every path for every edge, and there are {paths}: it takes graphs of at most {limit}; pspp takes any")]
    TooLargeForRepair {
        /// Number of paths.
        paths: u64,
        /// How many there may be.
        limit: u64,
    },
    /// Numbers of the preferential numbering would not fit a word.
    #[error("the numbers of the interesting paths would not fit 64 bits: name fewer paths, or take known-table")]
    Overflow,
    /// The numbers of the interesting paths are too far apart for an array.
    #[error("the numbers of the interesting paths spread over {span}, and there may be {limit}: name fewer paths, or take known-table")]
    TooWide {
        /// How far.
        span: u128,
        /// How far they may.
        limit: u128,
    },
    /// See [`NoHash`].
    #[error(transparent)]
    NoHash(#[from] NoHash),
}

impl NumberingError {
    /// The message of [`NumberingError::NoPathThrough`], with what the nodes are called.
    pub fn no_path_through<N: std::fmt::Display>(nodes: &[N]) -> String {
        let nodes: Vec<String> = nodes.iter().map(N::to_string).collect();
        format!("no path passes through all of the nodes {}: name fewer of them", nodes.join(", "))
    }
}

/// Numbers the paths of `dag`. `weights` are the executions of its edges, or what an increment there costs.
///
/// # Errors
/// See [`NumberingError`].
pub fn number(
    scheme: NumberingScheme,
    dag: &Dag,
    weights: &[f64],
    set: &InterestingSet,
    options: &NumberOptions,
) -> Result<Labelling, NumberingError> {
    let all = Numbering::ball_larus(dag)?;
    let place = |values: &[&[i64]]| labelling::place(dag, values, weights, options.placement);
    if scheme.takes_closure() {
        let set = set.closed();
        let values = match scheme {
            NumberingScheme::Spp => selective(dag, &set)?,
            NumberingScheme::Mspp => modified_selective(dag, &set)?,
            NumberingScheme::Pertinent => pertinent(dag, &set)?,
            _ => precise_selective(dag, &set)?,
        };
        return Ok(Labelling::closure(scheme, dag, place(&[&values]), values, &set));
    }
    match scheme {
        NumberingScheme::BallLarus => Ok(Labelling::every(place(&[all.values()]), &all)),
        NumberingScheme::KnownTable => {
            let ids: Vec<u64> = set.paths(dag)?.iter().map(|p| all.id(p)).collect();
            Ok(Labelling::hashed(place(&[all.values()]), PerfectHash::from_keys(&ids)?, &ids))
        }
        NumberingScheme::PppOptimal => {
            let paths = set.paths(dag)?;
            let first = preferential(dag, &paths, options.restarts)?;
            let best = optimal::optimal(dag, &paths, first, options.budget)?;
            let placed = place(&[&best.values, all.values()]);
            Labelling::checked(scheme, placed, &best.values, &all, &paths, Some(best.proof))
        }
        _ => {
            let paths = set.paths(dag)?;
            let values = preferential(dag, &paths, options.restarts)?.values;
            match scheme {
                NumberingScheme::Ppp => Labelling::checked(scheme, place(&[&values, all.values()]), &values, &all, &paths, None),
                _ => {
                    let values = approximate::fewer_aliases(dag, &all, &paths, values, options.budget.steps);
                    Ok(Labelling::unchecked(place(&[&values]), &values, &all, &paths))
                }
            }
        }
    }
}
