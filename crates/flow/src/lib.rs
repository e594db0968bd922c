//! Control-flow graphs, numberings of their paths, and the placement of probes that count them. The crate uses no files, clock or
//! randomness.
//!
//! A function's [`Graph`] is converted to a [`Dag`], in which dummy edges replace back edges and other edges that must be cut; [`limit`]
//! cuts further edges until the number of paths is within a limit. A [`Numbering`] gives each path a number, [`Probes`] moves the
//! increments to rarely executed edges, a [`Plan`] contains both, and a [`ProbeProgram`] lists the operations on each edge for a backend.
//!
//! The terms are those of T. Ball and J. R. Larus, "Efficient path profiling" (MICRO 1996).
//!
//! # Example
//!
//! Two branches in sequence have four paths. A path's number is the sum of what the register gains on its edges:
//!
//! ```
//! use trodden_flow::dag::Entries;
//! use trodden_flow::frequency::Frequencies;
//! use trodden_flow::plan::RegisterAction;
//! use trodden_flow::{Graph, Node, Plan, PlanOptions};
//!
//! // 0 branches to 1 or directly to 2; 2 branches to 3 or directly to 4, the exit.
//! let edges = [(0, 1), (0, 2), (1, 2), (2, 3), (2, 4), (3, 4)].map(|(from, to)| (Node(from), Node(to)));
//! let graph = Graph::new(5, Node(0), Node(4), edges.to_vec())?;
//! let options = PlanOptions { max_paths: 1000, entries: Entries::Shared, hot_first: false, chords: true };
//! let frequencies = Frequencies::estimate(&graph, &[1.0; 6]);
//! let plan = Plan::ball_larus(&graph, &[], &frequencies, &options);
//! assert_eq!(plan.numbering.paths(), 4);
//!
//! // Follow 0 -> 1 -> 2 -> 4 and add up the increments; the last edge counts the path.
//! let (mut register, mut counted) = (0, None);
//! for (from, to) in [(0, 1), (1, 2), (2, 4)] {
//!     let edge = graph.edges().find(|edge| (graph.from(*edge), graph.to(*edge)) == (Node(from), Node(to))).unwrap();
//!     match plan.action(&graph, edge) {
//!         RegisterAction::Add { increment } => register += increment,
//!         RegisterAction::Count { increment } => counted = Some(register + increment),
//!         other => panic!("a function without loops has no {other:?}"),
//!     }
//! }
//! let path = plan.numbering.path(&plan.dag, counted.unwrap() as u64).unwrap();
//! assert_eq!(path.len(), 3);
//! # Ok::<(), trodden_flow::GraphError>(())
//! ```
#![forbid(unsafe_code)]

pub mod bounds;
pub mod call_frequencies;
pub mod dag;
pub mod dense_set;
pub mod dominators;
pub mod frequency;
pub mod graph;
mod incidence;
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

pub use dag::{Cut, CutReason, Dag, DagEdge, DagEdgeId, DagEdgeSet, Origin};
pub use graph::{Edge, EdgeSet, Graph, GraphError, Node, NodeSet};
pub use interesting::InterestingPathPlan;
pub use numbering::{Numbering, NumberingScheme, TooManyPaths};
pub use placement::Probes;
pub use plan::{Plan, PlanOptions, RestrictedPlan};
pub use program::ProbeProgram;
pub use residual::ResidualPlan;
