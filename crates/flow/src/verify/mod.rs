//! Verifiers, which share no code with what makes numbers and parts: of numberings of all paths, and of what one of
//! several copies does, each in one pass or two.

mod full;
mod part;

pub use full::{Fault, verify_full};
pub use part::{PartFault, verify_part};
