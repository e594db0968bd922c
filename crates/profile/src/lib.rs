//! Path profiles: what was counted, joined with what the build knows.
//!
//! - [`model`]: a profile as data;
//! - [`paths`]: one function's counts as paths, block counts, edge counts, unfinished paths.
#![forbid(unsafe_code)]

pub mod model;
pub mod paths;

pub use model::{Ending, ImageProfile, Profile, Run, UnitProfile};
pub use paths::{Beginning, FunctionPaths, Lost, PathCount, PathEnd, Unfinished};
