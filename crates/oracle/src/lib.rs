//! Oracles of exactness.
//!
//! Path profiles are claimed to be exact. Here is what that claim is compared with, each made from the same bitcode (the
//! one that the build kept) and the same run, and none of it by trodden's probes:
//!
//! 1. [`counts`]: a plain counter in every block;
//! 2. [`log`]: a log of every step, from which the paths are counted again, counter by counter;
//! 3. [`pgo`]: LLVM's own edge profile, where paths were finished (elsewhere what it infers is wrong).
//!
//! [`interesting`] holds programs that count some paths against those that count all, [`untested`] what residual profiles say of a field
//! against two full profiles. [`random`] makes programs to check, in C and C++, with everything in them that moves
//! control in odd ways.
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

pub use error::Error;
pub use subject::{Link, LinkArgument, Subject, SubjectOutcome, SubjectRun, SubjectUnit};
pub use tools::Toolkit;
pub use verdict::{CountDifference, CountVerdict};
