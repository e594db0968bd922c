//! Interprocedural path segments of depth k, counted on the compressed sequence.
//!
//! After K. Vaswani, *Efficient Online Path Profiling*, sections 3.4.1 and 3.4.2. The grammar printed there, `P -> P | (P) | PP | <f,p>`,
//! allows any concatenation of subpaths, so this module uses two precise definitions instead: [`call_segments`] and [`supergraph_paths`].

mod calls;
mod supergraph;

pub use calls::{call_segments, call_segments_in_paths};
pub use supergraph::{SupergraphPaths, supergraph_paths};

use std::collections::HashMap;

/// How often each string of symbols occurs.
pub type SymbolStringCounts = HashMap<Vec<u64>, u64>;

/// Maximum depth of segments, that is, of nested calls in them.
pub const MAX_SEGMENT_DEPTH: usize = 100;
