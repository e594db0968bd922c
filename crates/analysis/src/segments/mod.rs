//! Interprocedural path segments: a caller's path up to a call and the callee's path after it, counted together.
//!
//! | file | what |
//! |---|---|
//! | `callees.rs` | which functions a path may call |
//! | `observed.rs` | the segments of runs |
//! | `compared.rs` | whether a program counted what a stream says |
//! | `untested.rs` | those that no test executed |
//! | `select.rs` | those that a build is to count (`trodden instrument --segments`) |
//! | `variant.rs` | whether the build counts them |

mod callees;
mod compared;
mod observed;
mod select;
mod untested;
mod variant;

pub use compared::{ComparedSegments, compare};
pub use observed::{NamedCounts, NamedPath, ObservedSegments, named};
pub use select::{asked, tested};
pub use untested::{SegmentProfiles, UntestedOfDepth, UntestedSegmentSelection, UntestedSegments, knows_tests};
pub use variant::check_variant;
