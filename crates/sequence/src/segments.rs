//! Interprocedural path segments of depth k, counted on the compressed sequence.
//!
//! Source: K. Vaswani, *Efficient Online Path Profiling*, sections 3.4.1 and 3.4.2. The grammar printed there, `P -> P | (P) | PP | <f,p>`,
//! lets any concatenation of subpaths be a segment, so that a definition is needed. Two are counted here.
//!
//! **Call segments** of depth k ([`call_segments`]) are those of the thesis's example. Each call that is executed begins exactly one
//! segment: it begins with the subpath that ends at the call, and goes on with whatever is executed next, as long as
//! - it spans at most k calls, siblings as well as nested ones: it ends before call k + 1;
//! - no back edge is crossed: it ends with a subpath that ends at one;
//! - the frame that it began in is not left.
//!
//! Where no subpath leads to the call, since paths are recorded whole ([`crate::events::Convention`]), the segment begins with the call's
//! bracket. So the rest of a callee behind a back edge, and the return from there, begin no segment and are in none. Calls of functions
//! that record nothing count as spanned calls, and begin no segment.
//!
//! **Supergraph paths** of depth k ([`supergraph_paths`]) are the acyclic paths of the graph in which the calls of a function are
//! replaced by their callees' graphs, to depth k; calls below are opaque. Each activation is the root of one such graph. Its execution is
//! cut at back edges of all frames of depth 0 to k below the root, and at its own entry and return; each stretch between two cuts is one
//! path, if it has an event of the root's own frame (a path, a call from it, a return to it). Stretches that lie in callees altogether
//! are paths of the callees' graphs, and are counted there. So a path may span siblings, and may begin in a callee's loop and return into
//! the root. Counts are sums over all activations: a path that begins in a callee does not say how that was entered. This is what
//! counting in inlined code counts; with k = 0 it is the intraprocedural profile.
//!
//! **Projection.** Call segments follow from supergraph paths of the same depth, by counts alone ([`project`]): a call at depth 0 of a
//! root begins its segment inside the supergraph path that it is on, and that path ends no earlier than the segment. The segments' counts
//! are the sums, over all supergraph paths (unfinished ones once) and all calls of depth 0 on them, of the paths' counts. The other
//! direction is impossible: a segment does not say what came before its call.

mod calls;
mod supergraph;

pub use calls::{call_segments, project};
pub use supergraph::{SupergraphPaths, supergraph_paths};

use std::collections::HashMap;

/// Counts of strings of symbols.
pub type SegmentCounts = HashMap<Vec<u64>, u64>;

/// The greatest depth.
pub const DEEPEST: usize = 100;
