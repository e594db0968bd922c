//! Random graphs and functions for tests, from seeds: the same seed gives the same test on every machine.
//!
//! Development only; nothing that is shipped depends on it.
#![forbid(unsafe_code)]

pub mod functions;
pub mod graphs;
pub mod programs;
pub mod random;

pub use functions::FunctionSubject;
pub use random::Random;
