//! Analyses of path profiles and of sequences of paths. Each module answers one question, which its documentation states first.
//!
//! The analyses read no clock and no environment: folders that the environment names are passed in ([`trodden_stored::Folders`]).
#![forbid(unsafe_code)]

pub mod advise;
pub mod changes;
pub mod choice;
pub mod combinations;
pub mod compared_runs;
pub mod copies;
mod error;
pub mod expression;
pub mod field;
pub mod git;
pub mod isolate;
pub mod iterations;
pub mod libraries;
pub mod residual;
pub mod segments;
pub mod sequences;
pub mod suite;
pub mod transformations;
pub mod untested;

pub use combinations::PathCombinationCounts;
pub use error::FieldError;
