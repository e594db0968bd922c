//! Interprocedural path segments: a caller's path up to a call, and the callee's path after it, counted together.
//!
//! `observed.rs` loads the segments of runs, `compared.rs` compares counted segments with a stream, and `untested.rs` finds the segments
//! that no test executed. `select.rs` uses `callees.rs` to choose the segments that a build counts (`trodden instrument --segments`), and
//! `variant.rs` checks that the build counts them.

mod callees;
mod compared;
mod observed;
mod select;
mod untested;
mod variant;

pub(crate) use observed::find_logs;

pub use compared::{ComparedSegments, compare};
pub use observed::{NamedCounts, NamedPath, ObservedSegments, names_of_segment_paths};
pub use select::{requested_segments, tested_contexts};
pub use untested::{
    SegmentProfiles, UntestedSegmentSelection, UntestedSegments, UntestedSegmentsOfDepth, does_image_count_untested_segments,
};
pub use variant::check_variant;
