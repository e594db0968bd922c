//! Finds untested paths in the profiles of deployed programs: `inputs.rs` reads the profiles, `known.rs` and `gathered.rs` remove the known
//! paths, and `schemes.rs` and `cost.rs` compare two schemes for finding path segments across calls. [`crate::untested`] decides which
//! paths are untested, [`crate::segments`] which segments.

mod cost;
mod gathered;
mod inputs;
mod known;
mod schemes;

pub use cost::{BuildCost, BuildCosts};
pub use gathered::FieldProfiles;
pub use inputs::{FIELD_FOLDER, ProfileInput, RunLabel, find_inputs};
pub use known::{KnownPathInput, build_known_file, warn_if_tests_differ};
pub use schemes::{SchemeComparison, SchemeResult, SchemeResults};
