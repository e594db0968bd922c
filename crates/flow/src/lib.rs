//! Control-flow graphs, numberings of their paths, and the placement of probes that count them. Pure: no files, clock or randomness.
//!
//! A function's [`Graph`] is converted to a [`Dag`], in which dummy edges replace back edges and other edges that must be cut; [`limit`]
//! cuts further edges until the number of paths is within a limit. A [`Numbering`] gives each path a number, [`Probes`] moves the
//! increments to rarely executed edges, a [`Plan`] contains both, and a [`ProbeProgram`] lists the operations on each edge for a backend.
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
