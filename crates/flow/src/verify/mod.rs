//! Verifiers of numberings, and of the parts of the paths that copies of a program count. They share no code with the numberings.

mod full;
mod part;

pub use full::{NumberingFault, verify_complete_numbering};
pub use part::{PartFault, verify_part};
