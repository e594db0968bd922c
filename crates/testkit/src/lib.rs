//! Random graphs, functions and programs for tests. The same seed gives the same result on every machine.
//!
//! Only tests and development tools depend on this crate.
#![forbid(unsafe_code)]

pub mod functions;
pub mod graphs;
pub mod programs;
pub mod random;

pub use functions::RandomFunction;
pub use random::Random;
