//! Untested paths in the field: reading profiles (`inputs.rs`), removing known paths (`known.rs`, `gathered.rs`), and the cost of both
//! schemes of finding segments across calls (`schemes.rs`, `cost.rs`). [`crate::untested`] decides which paths are untested,
//! [`crate::segments`] which segments.

mod cost;
mod gathered;
mod inputs;
mod known;
mod schemes;

pub use cost::{BuildCost, BuildCosts};
pub use gathered::FieldProfiles;
pub use inputs::{FIELD_FOLDER, ProfileInput, RunLabel, find_inputs};
pub use known::{KnownInput, build_known_file, warn_if_tests_differ};
pub use schemes::{Scheme, SchemeJob, SchemeResults};
