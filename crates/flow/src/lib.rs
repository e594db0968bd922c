//! Control-flow graphs, numberings of their paths, and where to put the probes that count them.
//!
//! Everything here is pure: no files, no environment, no clock, no randomness. A function's journey through this crate:
//!
//! 1. [`Graph`]: nodes, numbered edges, one entry, one exit ([`graph`]).
//! 2. Edge frequencies, measured or estimated ([`frequency`]).
//! 3. [`Dag`]: the graph with its back edges, and whatever else has to be cut, replaced by dummy edges ([`dag`]); a graph with
//!    too many paths is cut further until they fit a limit ([`limit`]).
//! 4. [`Numbering`]: a value for each edge so that the sum along a path is its identity ([`numbering`]).
//! 5. [`Probes`]: the same sums with increments on few, rarely executed edges only ([`placement`]).
//! 6. [`Plan`]: numbering and increments ([`plan`]).
//! 7. [`ProbeProgram`]: what a backend has to do on which edge, in which order, after passes that make it cheaper ([`program`]).
//!
//! [`part`] is what one of several copies of a program counts. The crates `selective`, `partition`, `witness` and `coding` build on
//! this one.
//!
//! [`bounds`] says what counts of some nodes say of others.
//!
//! The terms are those of T. Ball and J. R. Larus, "Efficient path profiling" (MICRO 1996).
#![forbid(unsafe_code)]

pub mod bounds;
pub mod call_frequencies;
pub mod dag;
pub mod dominators;
pub mod frequency;
pub mod graph;
pub mod interesting;
pub mod limit;
pub mod numbering;
pub mod part;
pub mod placement;
pub mod plan;
pub mod program;
pub mod residual;
pub mod selective_inlining;
pub mod trim;
pub mod verify;

pub use dag::{Cut, CutReason, Dag, DagEdge, DagEdgeId, Origin};
pub use graph::{Edge, Graph, GraphError, Node};
pub use interesting::InterestingPlan;
pub use numbering::{Numbering, NumberingScheme, TooManyPaths};
pub use placement::Probes;
pub use plan::{Partial, Plan, PlanOptions};
pub use program::ProbeProgram;
pub use residual::ResidualPlan;
