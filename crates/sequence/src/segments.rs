//! Interprocedural path segments of depth k, counted on the compressed sequence.
//!
//! After K. Vaswani, *Efficient Online Path Profiling*, sections 3.4.1 and 3.4.2. The grammar printed there, `P -> P | (P) | PP | <f,p>`,
//! allows any concatenation of subpaths, so two precise definitions are used instead.
//!
//! **Call segments** ([`call_segments`]) are those of the thesis's example. Each executed call starts one segment: the subpath that ends at
//! the call (or the call's `Enter`, if no subpath leads to it), and what is executed next. The segment ends before call k + 1, nested or
//! not, after a subpath that ends at a back edge, or before the frame where it began is left. Calls of functions that record nothing count
//! towards k, but start no segment.
//!
//! **Supergraph paths** ([`supergraph_paths`]) are the acyclic paths of a function's graph with calls replaced by their callees' graphs, to
//! depth k. Each activation is the root of such a graph. Its execution is cut at back edges of frames at depths 0 to k, and at its own
//! entry and return. Each range between two cuts that has an event of the root's own frame (a path, a call from it, a return to it) is one
//! path. Paths may span siblings, or begin in a callee's loop and return into the root. Counts are sums over all activations. This is what
//! counting in inlined code counts; with k = 0, it is the intraprocedural profile.
//!
//! **Projection** ([`project`]): call segments follow from the counts of supergraph paths of the same depth, since a call at depth 0 starts
//! its segment within one path, which ends no earlier than the segment. The reverse is impossible: a segment does not tell what came before
//! its call.

mod calls;
mod supergraph;

pub use calls::{call_segments, project};
pub use supergraph::{SupergraphPaths, supergraph_paths};

use std::collections::HashMap;

/// Counts of strings of symbols.
pub type SegmentCounts = HashMap<Vec<u64>, u64>;

/// Maximum depth of segments.
pub const MAX_DEPTH: usize = 100;
