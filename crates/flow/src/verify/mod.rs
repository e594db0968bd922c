//! Verifiers of numberings and of the parts that copies of a program count. They share no code with what they verify.

mod full;
mod part;

pub use full::{Fault, verify_full};
pub use part::{PartFault, verify_part};
