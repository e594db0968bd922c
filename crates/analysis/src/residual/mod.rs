//! Untested paths of the field: what is read, what is known of it, and what both schemes of finding segments across calls cost.
//! Which paths are untested is said by [`crate::untested`], which segments by [`crate::segments`].
//!
//! | file | what |
//! |---|---|
//! | `inputs.rs` | profiles of the field |
//! | `known.rs` | known paths |
//! | `gathered.rs` | all profiles of the field as one, with what no test took |
//! | `schemes.rs`, `cost.rs` | both schemes compared; what builds cost |

mod cost;
mod gathered;
mod inputs;
mod known;
mod schemes;

pub use cost::{BuildCost, Costs};
pub use gathered::FieldProfiles;
pub use inputs::{FIELD_FOLDER, ProfileInput, RunLabel, inputs};
pub use known::{KnownInput, known_to, report_known};
pub use schemes::{Scheme, SchemeJob, Schemes};
