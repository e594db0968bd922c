//! Oracles that test whether path profiles are exact. They use the same bitcode and input, but none of the counts of trodden's probes:
//! [`counts`], a counter in every block; [`log`], a log of every step, from which all paths are counted; and [`pgo`], LLVM's edge profile.
//!
//! [`interesting`] compares programs that count interesting paths with those that count all, [`untested`] computes what residual profiles
//! should report from two full profiles, and [`branches`] compares reconstructed with counted paths. [`random`] generates C and C++
//! programs with unusual control flow to check.
#![forbid(unsafe_code)]

pub mod branches;
pub mod check;
pub mod counts;
pub mod delta;
mod error;
pub mod interesting;
pub mod log;
pub mod pgo;
pub mod probes;
pub mod program;
pub mod random;
pub mod step;
pub mod subject;
pub mod text;
pub mod tools;
pub mod untested;
pub mod verdict;

pub use error::OracleError;
pub use subject::{LinkArgument, LinkCommand, OracleSubject, SubjectOutcome, SubjectRun, SubjectUnit};
pub use tools::OracleTools;
pub use verdict::{CountDifference, CountVerdict};
